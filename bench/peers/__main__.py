"""`python -m bench.peers`: measure dledger and its peers in turn, print the table, write the page.

Exit codes: 0 all that was asked for and that the systems have is measured; 1 something could not be
measured, the page says what and why; 2 the command line is wrong.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from bench.peers.etcd import Etcd
from bench.peers.figures import FULL, QUICK, Results, Work
from bench.peers.installing import DEFAULT_HOME
from bench.peers.jetstream import JetStream
from bench.peers.kafka import Kafka
from bench.peers.ours import Ours
from bench.peers.page import Machine, Run, page, terminal
from bench.peers.peer import Peer
from bench.peers.rabbitmq import RabbitMq
from bench.peers.rounds import Rounds, available

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance" / "peers.md"
ROUNDS = 3


def all_peers(home: Path) -> dict[str, Peer]:
    """Return every system by the name that `--only` takes."""
    return {
        "dledger": Ours(),
        "kafka": Kafka(home),
        "kafka-flush": Kafka(home, flushes=True),
        "etcd": Etcd(home),
        "nats": JetStream(home),
        "rabbitmq": RabbitMq(home),
    }


NAMES = tuple(all_peers(Path()))


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often each system is measured.")] = ROUNDS,
    only: Annotated[
        str, typer.Option(help=f"Some of {','.join(NAMES)}, with commas. Default: all.")
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="One round that takes minutes; rough figures.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write; JSON lines go beside it. Default: docs/performance/peers.md, "
            "and out/peers.md with --quick or --only."
        ),
    ] = None,
    home: Annotated[
        Path, typer.Option(help="Where installed systems are kept, outside the repository.")
    ] = DEFAULT_HOME,
) -> None:
    """Measure dledger and its peers in turn; print a table of ratios and write a page with it."""
    screen = Console(stderr=True)
    known = all_peers(home.expanduser().resolve())
    chosen = only.split(",") if only else list(known)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        screen.print(f"no system {unknown[0]!r}; there are {', '.join(known)}")
        raise typer.Exit(2)
    place = out or (ROOT / "out" / "peers.md" if quick or only else PAGE)
    times, work = (1, QUICK) if quick else (rounds, FULL)
    results = Results()
    peers = [known[name] for name in chosen]
    for name, peer in known.items():
        if name not in chosen:
            results.leave_out(f"{peer.name} is left out: --only does not name it", by_nature=True)
    machine = _measure(peers, results, times, work, _Told(screen, _lines_of(place)))
    run = Run(time.strftime("%Y-%m-%d"), times, work, machine)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(page(peers, results, run))
    screen.print(terminal(peers, results))
    for each in results.left_out:
        screen.print(f"left out: {each}", style="bold red", markup=False)
    screen.print(f"written: {place}")
    raise typer.Exit(int(results.has_failed))


def _lines_of(place: Path) -> Path:
    """Return where the JSON lines of a page go: beside it, but not into the docs."""
    return ROOT / "out" / "peers.jsonl" if place.resolve() == PAGE else place.with_suffix(".jsonl")


class _Told:
    """Tells what goes on, and keeps each figure as soon as it is there."""

    def __init__(self, screen: Console, lines: Path) -> None:
        self._screen = screen
        self._lines = lines
        lines.parent.mkdir(parents=True, exist_ok=True)
        lines.write_text("")

    def tell(self, what: str) -> None:
        style = "bold red" if what.startswith("LEFT OUT") else "dim"
        self._screen.print(f"{time.strftime('%H:%M:%S')} {what}", style=style, markup=False)

    def keep(self, system: str, key: str, value: float) -> None:
        line = json.dumps({"system": system, "figure": key, "value": float(f"{value:.6g}")})
        print(line, flush=True)
        with self._lines.open("a") as file:
            file.write(line + "\n")


def _measure(peers: list[Peer], results: Results, times: int, work: Work, told: _Told) -> Machine:
    """Install and measure; return what the machine is."""
    there = available(peers, results, told.tell)
    (ROOT / "out").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="peers-", dir=ROOT / "out"))
    try:
        machine = Machine.look(folder)
        failed = ROOT / "out" / "peers-failed"
        here = Rounds(results, work, folder, failed, told.tell, told.keep)
        uvloop.run(here.run(there, times))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return machine


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    typer.run(main)
