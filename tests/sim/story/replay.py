"""Which part of a seed runs: all of it, or some faults, some clients, less time; with which bug.

Owns: these options, and how the command line spells them.
"""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replay:
    """What of a seed is left out. Each option that is None leaves out nothing."""

    keep: frozenset[str] | None = None
    """Only these faults, by their names."""
    clients: frozenset[str] | None = None
    """Only these clients."""
    until: float | None = None
    """Stop at this virtual time."""
    safety: float | None = None
    """All faults end at this virtual time."""
    bug: str = ""
    """A known bug of `tests/mutants` that the product has."""

    def command(self, seed: int, command: str = "sim") -> str:
        """Return the command that replays this part of a seed."""
        options = [f"python -m tests.sim.run {command} --seed {seed}"]
        if self.keep is not None:
            options.append(f"--keep {','.join(in_order(self.keep)) or 'none'}")
        if self.clients is not None:
            options.append(f"--clients {','.join(sorted(self.clients))}")
        if self.safety is not None:
            options.append(f"--safety {self.safety:g}")
        if self.until is not None:
            options.append(f"--until {self.until:g}")
        if self.bug:
            options.append(f"--bug {self.bug}")
        return " ".join(options)


WHOLE = Replay()


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of faults: turns by number, then elections by member and term."""
    return sorted(names, key=lambda name: (not name.isdigit(), int(name.rpartition(".")[2]), name))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command."""
    parser.add_argument("--keep", help='only these faults, such as 3,7,b.4; "none": no fault')
    parser.add_argument("--clients", help="only these clients, such as p0,c1")
    parser.add_argument("--until", type=float, help="stop at this virtual second")
    parser.add_argument("--safety", type=float, help="all faults end at this virtual second")
    parser.add_argument("--bug", default="", help="put a known bug into the product, by name")


def from_arguments(arguments: argparse.Namespace) -> Replay:
    """Return what the command line asks for."""
    keep = None if arguments.keep is None else _names(arguments.keep) - {"none"}
    clients = None if arguments.clients is None else _names(arguments.clients)
    return Replay(keep, clients, arguments.until, arguments.safety, arguments.bug)


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())
