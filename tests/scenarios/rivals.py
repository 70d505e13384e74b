"""Two at work in one folder, their calls to the disk in an order that a test chooses."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from dledger_client.export import run as protocol
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.planning import Options
from dledger_client.export.run import Clock, Outcome
from tests.unit.export.fakes import FakeLog, HereEngine, QuickDisk

DEADLINE_SECONDS = 60.0
T = TypeVar("T")


@dataclass(slots=True)
class Turns:
    """Whose turn it is: `first` makes some calls, then `second` some, then `first` to its end."""

    change: int
    back: int
    made: dict[str, int] = field(default_factory=lambda: {"first": 0, "second": 0})
    ended: set[str] = field(default_factory=set[str])
    moved: threading.Condition = field(default_factory=threading.Condition)

    def whose(self) -> str:
        """Return who may make the next call."""
        if self.made["first"] < self.change and "first" not in self.ended:
            return "first"
        if self.made["second"] < self.back and "second" not in self.ended:
            return "second"
        return "second" if "first" in self.ended else "first"

    def wait(self, name: str) -> None:
        """Return when it is this one's turn; the call is counted."""
        with self.moved:
            assert self.moved.wait_for(lambda: self.whose() == name, DEADLINE_SECONDS), name
            self.made[name] += 1
            self.moved.notify_all()

    def end(self, name: str) -> None:
        """Let the other one have the rest."""
        with self.moved:
            self.ended.add(name)
            self.moved.notify_all()


class TurnsDisk(QuickDisk):
    """Waits for its turn before each call that the other exporter could notice."""

    def __init__(self, turns: Turns, name: str) -> None:
        self._turns = turns
        self._name = name

    def link(self, old: Path, new: Path) -> None:
        self._turns.wait(self._name)
        super().link(old, new)

    def replace(self, old: Path, new: Path) -> None:
        self._turns.wait(self._name)
        super().replace(old, new)

    def unlink(self, path: Path) -> None:
        self._turns.wait(self._name)
        super().unlink(path)

    def make_folder(self, path: Path) -> None:
        self._turns.wait(self._name)
        super().make_folder(path)

    def read(self, path: Path) -> bytes:
        self._turns.wait(self._name)
        return super().read(path)

    def names(self, path: Path) -> list[str]:
        self._turns.wait(self._name)
        return super().names(path)


def race(
    root: Path, log: FakeLog, change: int, back: int, options: Options, clock: Clock
) -> list[Outcome]:
    """Run two exporters by that schedule; return how they ended. What either raises is raised."""

    def export(storage: ExportStorage) -> Outcome:
        return protocol.export_once(storage, log, HereEngine(), options, clock)

    return race_of(root, change, back, export, export)


def race_of(
    root: Path,
    change: int,
    back: int,
    first: Callable[[ExportStorage], T],
    second: Callable[[ExportStorage], T],
) -> list[T]:
    """Run any two things by that schedule; return what they returned, in the order of their ends.

    What either raises is raised.
    """
    turns = Turns(change, back)
    results: list[T] = []
    errors: list[BaseException] = []

    def do(name: str, what: Callable[[ExportStorage], T]) -> None:
        try:
            results.append(what(ExportStorage(root, TurnsDisk(turns, name))))
        except BaseException as error:
            errors.append(error)
        finally:
            turns.end(name)

    threads = [
        threading.Thread(target=do, args=("first", first)),
        threading.Thread(target=do, args=("second", second)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
