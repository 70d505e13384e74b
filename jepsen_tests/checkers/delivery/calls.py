"""Calls of listeners, as their consumers tell them.

All times are those of the consumers, by the clock that the processes of one machine share. The
order of rows says less: lines of several processes are read whenever their turn comes.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from jepsen_tests.checkers.shared.view import View, grouped
from jepsen_tests.history.events import Op

CONCURRENT: Final = "concurrent"
DONE: Final = "done"
FAILED: Final = "failed"
DEAD: Final = "dead"

Record = tuple[str, str, int]
"""Consumer group, place and offset of a record as its producer sent it."""
Queue = tuple[str, str]
"""Consumer group, and a place that it reads."""


class Call(msgspec.Struct, gc=False):
    """One call of a listener."""

    op: Op
    group: str
    origin: str
    offset: int
    read: str
    """The place where the record was read."""
    read_offset: int
    value: str
    consumer: str
    order: str
    epoch: int
    attempts: int
    begun: int
    said: str
    """DONE, FAILED, DEAD; empty: nobody knows, the consumer was killed or lost the queue."""
    ended: int
    """When it said so; when nobody knows, when the call was certainly over."""

    @property
    def record(self) -> Record:
        """Return of which record it is."""
        return self.group, self.origin, self.offset

    @property
    def queue(self) -> Queue:
        """Return in which queue the group read it."""
        return self.group, self.read

    @property
    def is_again(self) -> bool:
        """It is a retry, or a dead letter that was sent again."""
        return self.read != self.origin

    @property
    def finishes(self) -> bool:
        """After it the group has finished with the record where it was read."""
        return self.said in (DONE, DEAD) or (self.said == FAILED and self.order == CONCURRENT)

    @property
    def rows(self) -> tuple[int, ...]:
        """Return the rows that show it."""
        return (self.op.i, self.op.done) if self.op.done else (self.op.i,)

    @property
    def text(self) -> str:
        """Return it for people."""
        again = f" (of {self.origin} offset {self.offset})" if self.is_again else ""
        return f"{self.read} offset {self.read_offset}{again} at {self.consumer}"


def calls_of(view: View) -> list[Call]:
    """Return all calls, in the order in which they began."""
    found: list[Call] = []
    for op in view.ops("handle"):
        asked = op.asked
        group, _, origin = op.k.rpartition("@")
        said, ended = op.result if op.is_ok else ("", op.over)
        place, offset = asked["read"]
        found.append(
            Call(
                op, group, origin, asked["offset"], place, offset, asked["value"],
                asked["consumer"], asked["order"], asked["epoch"], asked["attempts"],
                asked["begun"], said, ended,
            )
        )  # fmt: skip
    found.sort(key=lambda call: call.begun)
    return found


def by_record(calls: Iterable[Call]) -> dict[Record, list[Call]]:
    """Return calls by the record that they are of."""
    return grouped(calls, lambda call: call.record)


def by_queue(calls: Iterable[Call]) -> dict[Queue, list[Call]]:
    """Return calls by the queue in which their records were read."""
    return grouped(calls, lambda call: call.queue)


def rows_of(calls: Iterable[Call]) -> list[int]:
    """Return the rows that show calls."""
    return [row for call in calls for row in call.rows]
