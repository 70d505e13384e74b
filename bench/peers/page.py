"""The table of ratios, for the terminal and as the page `docs/performance/peers.md`.

Owns how results are told. Not: what they are (`figures.py`).
"""

import os
import platform
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from bench.peers.figures import OURS, QUICK, ROWS, Results, Row, Work
from bench.peers.peer import Peer
from bench.setup import floors

COLUMNS_MAX = 100
NOT_MEASURED = "-"
INTRODUCTION = """\
`make bench-peers` measures dledger and other systems on the same work and on one machine, in turn.
Each system has three nodes on loopback and a data folder of its own on the same disk. A message has
1 KiB of random bytes unless the row says otherwise. Clients are the Python clients that users of a
system have. All servers keep their default settings, except where a system's fsync says otherwise.
"""
READING = """\
**How to read the table.** A cell is the system's value, then in brackets how many times better
dledger is: above 1 dledger is ahead, below 1 it is behind. Values are medians of the rounds, the
longest gap is that of all rounds. Only ratios taken in one run mean something: the same machine
gives other values on another day.

A lone send has nothing else in flight; the only client of another system stands in the rows of both
of our clients. End to end is from the call of the producer to the message in a reader that waits
for it. At half of the own rate each system has half of what it took in the first row, on one queue,
and a message's time begins when it is due. The gap is the longest time without an acknowledgement
after the leader got SIGKILL, for one producer that sends one message after the other and soon asks
again.
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it was measured."""

    cores: int
    processor: str
    kernel: str
    python: str
    fdatasync_ms: float

    @classmethod
    def look(cls, folder: Path) -> "Machine":
        """Look at this machine, and at the disk of a folder."""
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        return cls(
            os.cpu_count() or 1,
            names[0] if names else platform.machine(),
            platform.release(),
            platform.python_version(),
            floors.one_fdatasync(folder) * 1000,
        )


@dataclass(frozen=True, slots=True)
class Run:
    """What was run, and when."""

    date: str
    rounds: int
    work: Work
    machine: Machine


def short(value: float) -> str:
    """Return a value with three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cell(results: Results, system: str, row: Row) -> str:
    """Return a value, and for a peer the ratio beside it."""
    value = results.value(system, row)
    if value is None:
        return NOT_MEASURED
    ratio = results.ratio(system, row)
    if system == OURS or ratio is None:
        return short(value)
    return f"{short(value)} ({short(ratio)})"


def measured(peers: Sequence[Peer], results: Results) -> list[Peer]:
    """Return the systems that have any figure."""
    return [peer for peer in peers if any(results.value(peer.name, row) for row in ROWS)]


def terminal(peers: Sequence[Peer], results: Results) -> Table:
    """Return the table for the terminal."""
    shown = measured(peers, results)
    table = Table(title="dledger beside its peers: value (times better ours is)")
    table.add_column("figure")
    for peer in shown:
        table.add_column(f"{peer.name}\n{peer.fsync}", justify="right")
    for row in ROWS:
        cells = [cell(results, peer.name, row) for peer in shown]
        table.add_row(f"{row.title}, {row.unit}", *cells)
    return table


def page(peers: Sequence[Peer], results: Results, run: Run) -> str:
    """Return the page."""
    shown = measured(peers, results)
    machine = run.machine
    where = (
        f"Measured on {run.date}: {_count(run.rounds, 'round')}, {_count(machine.cores, 'core')} "
        f"of {machine.processor}, Linux {machine.kernel}, Python {machine.python}. A write of "
        f"1 KiB with its fdatasync took {short(machine.fdatasync_ms)} ms."
    )
    parts = ["# dledger beside its peers", INTRODUCTION.strip(), _wrapped(where)]
    if run.work == QUICK:
        parts.append(_wrapped(
            "**This run was a quick one** (`--quick`): it shows that everything works. "
            "Do not quote its figures. A JVM above all has not warmed up in it."
        ))  # fmt: skip
    parts += [READING.strip(), "\n".join(_rows(shown, results)), "## The systems"]
    parts.append("\n".join(_system(peer, results) for peer in shown))
    parts.append("## What is left out")
    out = [_wrapped(f"- {each}.", "  ") for each in results.left_out]
    parts.append("\n".join(out) if out else "Nothing.")
    return "\n\n".join(parts) + "\n"


def _rows(shown: Sequence[Peer], results: Results) -> list[str]:
    lines = [
        _line("figure", *(peer.name for peer in shown)),
        _line("---", *("---" for _ in shown)),
        _line("*who has synced*", *(f"*{peer.fsync}*" for peer in shown)),
    ]
    for row in ROWS:
        cells = (cell(results, peer.name, row) for peer in shown)
        lines.append(_line(f"{row.title}, {row.unit}", *cells))
    return lines


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _system(peer: Peer, results: Results) -> str:
    version = results.versions.get(peer.name, "unknown")
    text = f"- **{peer.name}** {version}: {peer.fsync}. {peer.note}"
    return _wrapped(text.strip(), "  ")


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, COLUMNS_MAX, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
