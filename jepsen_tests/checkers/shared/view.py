"""A history, and what several checkers need to know of it.

The first checker that asks for a part makes the view build it; the view then keeps it. A view never
changes its history.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cached_property
from operator import attrgetter
from typing import TypeVar

from jepsen_tests.checkers.shared.log_view import PERHAPS, LogView
from jepsen_tests.checkers.shared.readers import FINDING, Readers
from jepsen_tests.checkers.shared.stamps import Stamps
from jepsen_tests.history.events import INTERRUPTED, NEMESIS, History, Kind, Op
from jepsen_tests.history.faults import FaultInForce, faults_in_force, phase_of

NS: int = 1_000_000_000
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class View:
    """A history and what is known of it."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.header = history.header
        assert all(row.p == NEMESIS for row in history.faults), "a client's row among the faults"

    @cached_property
    def by_function(self) -> dict[str, list[Op]]:
        """Operations by function, in order of invocation."""
        return dict(grouped(self.history.ops, attrgetter("f")))

    def ops(self, *functions: str) -> list[Op]:
        """Return the operations of some functions, in order of invocation."""
        lists = [self.by_function[f] for f in functions if f in self.by_function]
        if len(lists) <= 1:
            return lists[0] if lists else []
        return sorted((op for each in lists for op in each), key=lambda op: op.i)

    @cached_property
    def functions(self) -> set[str]:
        """What the run's workload is there to do, as the header says."""
        return set(self.header.notes.get("least_ok", {}))

    @cached_property
    def sends(self) -> list[Op]:
        """All sends and resends, in order of invocation."""
        return self.ops("send", "resend")

    @cached_property
    def writes(self) -> list[Op]:
        """Everything that a quorum must store, in order of invocation."""
        return self.ops("send", "resend", "commit", "reset", "set", "trim", "hold", "release")

    @cached_property
    def statuses(self) -> list[Op]:
        """What members said of themselves, in the order in which they were asked."""
        return [op for op in self.ops("status") if op.is_ok]

    @cached_property
    def final_row(self) -> int | None:
        """The row that began phase "final"; None when it never began."""
        row = phase_of(self.history, "final")
        return None if row is None else row.i

    @cached_property
    def interrupted(self) -> str:
        """The signal by which somebody broke the run off; empty: nobody did."""
        signals = (row.k or "a signal" for row in self.history.faults if row.f == INTERRUPTED)
        return next(signals, "")

    @property
    def cut_short(self) -> str:
        """Why a checker may conclude nothing from records that are missing; empty: it may.

        Wrong records that were read are anomalies all the same.
        """
        if self.final_row is None:
            return "there was no final phase"
        if self.interrupted:
            return f"the run was broken off by {self.interrupted} in its final phase"
        return ""

    def is_final(self, op: Op) -> bool:
        """Say whether an operation was invoked in the final phase."""
        return self.final_row is not None and op.i > self.final_row

    def final(self, *functions: str) -> list[Op]:
        """Return the ok operations of some functions in the final phase."""
        return [op for op in self.ops(*functions) if op.is_ok and self.is_final(op)]

    @cached_property
    def faults(self) -> list[FaultInForce]:
        """Every fault with the time in which it was in force, or may have been."""
        return list(faults_in_force(self.history, unfinished=True))

    @cached_property
    def stamps(self) -> Stamps:
        """The store times that reads showed."""
        return Stamps(self.ops("stamps", "lookup", "lookup-key", "lookup-id"))

    @cached_property
    def log(self) -> LogView:
        """The logs of all places."""
        return self._read_logs[0]

    @cached_property
    def readers(self) -> Readers:
        """Where readers stood, and how they jumped."""
        return self._read_logs[1]

    @cached_property
    def _read_logs(self) -> tuple[LogView, Readers]:
        log = LogView(self.final_row)
        for row, name, floor in sorted(self._floors()):
            log.places[name].trim(row, floor)
        for op in self.ops("send", "resend", "zombie-send", *PERHAPS):
            log.take_send(op)
        readers = Readers(log)
        for op in self.ops("assign", "poll", "crash", "drain", *FINDING):
            readers.take(op)
        log.settle()
        return log, readers

    def _floors(self) -> Iterator[tuple[int, str, int]]:
        """Yield row, place and offset: from this row on, values below this offset may be gone."""
        for op in self.ops("trim"):
            if op.outcome is not Kind.FAIL:
                yield op.i, op.k, op.asked
            if op.is_ok:
                yield op.i, op.k, op.result
        for op in self.ops("bounds"):
            if op.is_ok and op.result[0]:
                yield op.i, op.k, op.result[0]


def grouped(items: Iterable[T], key: Callable[[T], K]) -> defaultdict[K, list[T]]:
    """Return operations, or what was made of them, by a key, each group in their order."""
    groups: defaultdict[K, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


def seconds(ns: int) -> float:
    """Return nanoseconds as seconds, rounded for people."""
    return round(ns / NS, 3)
