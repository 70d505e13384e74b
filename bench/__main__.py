"""`python -m bench [name ...]`: run benchmarks, print JSON lines and a table.

Exit codes: 0 everything measured (met or not; see the column); 1 a benchmark could not be run.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import grpc.aio
import typer
import uvloop
from rich.console import Console

from bench.bulk import decode, exports, spark
from bench.cluster import compaction, failover, idle, lag, refill, restart, snapshot, steady
from bench.delivery import delay, push, rebalance, timers
from bench.effort import Effort
from bench.figures import Figure, table
from bench.log import append, fetch, gaps, latency, lone, metered, secure, send, single
from bench.scale import axes
from bench.setup.cluster import NotReady
from dledger_proto.errors import DledgerError

Measure = Callable[[Effort], Awaitable[list[Figure]]]
BENCHMARKS: dict[str, Measure] = {
    "append": append.measure,
    "send": send.measure,
    "gaps": gaps.measure,
    "single": single.measure,
    "lone": lone.measure,
    "secure": secure.measure,
    "metered": metered.measure,
    "fetch": fetch.measure,
    "latency": latency.measure,
    "failover": failover.measure,
    "steady": steady.measure,
    "restart": restart.measure,
    "idle": idle.measure,
    "lag": lag.measure,
    "refill": refill.measure,
    "snapshot": snapshot.measure,
    "compaction": compaction.measure,
    "delay": delay.measure,
    "timers": timers.measure,
    "push": push.measure,
    "rebalance": rebalance.measure,
    "decode": decode.measure,
    "exports": exports.measure,
    "spark": spark.measure,
    "scale": axes.measure,
}
ROOT = Path(__file__).parents[1]


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Some of {', '.join(BENCHMARKS)}. Default: all.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="How often each comparison runs.")] = 7,
    minutes: Annotated[
        float, typer.Option(min=0.05, help="Minutes of full load in `steady`.")
    ] = 10.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Takes minutes; gives rough figures.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write JSON lines into this file, too.")] = None,
    folder: Annotated[
        Path, typer.Option(help="A folder on the disk to measure. Its new files are removed.")
    ] = ROOT / "out",
) -> None:
    """Run benchmarks; print JSON lines and a table."""
    screen = Console(stderr=True)
    chosen = names or list(BENCHMARKS)
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        screen.print(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
        raise typer.Exit(2)
    folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="bench-", dir=folder))
    effort = Effort.quick(work) if quick else Effort(work, runs=runs, minutes=minutes)
    figures: list[Figure] = []
    try:
        failed = uvloop.run(_run(chosen, effort, out, figures, screen))
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if figures:
            screen.print(table(figures))
    raise typer.Exit(failed)


async def _run(
    chosen: list[str], effort: Effort, out: Path | None, figures: list[Figure], screen: Console
) -> int:
    """Run benchmarks one after the other; return the exit code.

    All on one loop: gRPC does not bear a second one in a process after the first was closed.
    """
    failed = 0
    for name in chosen:
        screen.print(f"[dim]{time.strftime('%H:%M:%S')} {name}[/]")
        try:
            found = await BENCHMARKS[name](effort)
        except (NotReady, DledgerError, grpc.aio.AioRpcError) as error:
            failed = 1
            screen.print(f"{name}: {error}; logs are in out/bench-failed", style="red")
            continue
        figures += found
        for figure in found:
            _write(figure.line(), out)
    return failed


def _write(line: str, out: Path | None) -> None:
    print(line, flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    typer.run(main)
