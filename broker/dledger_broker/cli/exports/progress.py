"""Progress of an export: a bar on a terminal, JSON lines for programs."""

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from dledger_broker.cli.output import print_json

if TYPE_CHECKING:
    from dledger_client.export.layout import Piece
    from dledger_client.export.run import Engine
    from dledger_client.export.task import Made, Work

LINE_SECONDS: Final = 1.0
"""Between two JSON lines."""


class Reporter:
    """Wraps an engine and shows its progress."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._engine: Engine | None = None
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._files = self._rows = 0
        self._began = 0.0
        self._said = 0.0

    @contextmanager
    def running(self, engine: "Engine") -> Generator[None]:
        """Wrap an engine while the block runs."""
        self._engine = engine
        try:
            yield
        finally:
            self._engine = None

    def run(self, work: "Work", pieces: "Sequence[Piece]") -> "list[Made]":
        """Run the engine and show its progress."""
        assert self._engine is not None, "between two runs there is nothing to show"
        # By rows, of which a plan has the number: bytes are estimates of the log, and what is
        # counted are columns in memory.
        self._files, self._rows = len(pieces), sum(piece.end - piece.start for piece in pieces)
        self._began = self._said = time.monotonic()
        console = Console(file=sys.stderr)
        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=self.as_json or not console.is_terminal,
        )
        with bar:
            self._bar = bar
            self._task = bar.add_task("0 rows", total=self._rows or None)
            try:
                return self._engine.run(work, pieces)
            finally:
                self._bar = None

    def advance(self, files: int, rows: int, size: int) -> None:
        """Show the progress so far."""
        now = time.monotonic()
        seconds = max(now - self._began, 1e-9)
        rows = min(rows, self._rows)  # what an attempt read in vain is counted, too
        if self._bar is not None:
            rate = f"{size / seconds / 1e6:,.0f} MB/s"
            text = f"{files} of {self._files} files, {rows:,} rows, {rate}"
            self._bar.update(self._task, completed=rows, description=text)
        if self.as_json and now - self._said >= LINE_SECONDS:
            self._said = now
            left = round((self._rows - rows) * seconds / rows) if rows else None
            print_json(
                {
                    "event": "progress",
                    "files": files,
                    "of": self._files,
                    "rows": rows,
                    "of_rows": self._rows,
                    "bytes_per_second": round(size / seconds),
                    "seconds_left": left,
                }
            )
