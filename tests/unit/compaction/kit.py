"""A leader that compacts a queue, on virtual time, and what a reader sees of the queue."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger.state.commands.command import Command
from dledger.state.queues import table as tables
from dledger.state.queues.holds import Hold
from dledger.state.results import Refused
from dledger.state.topics.commands import UpdateTopic
from dledger.state.values import QueueSpan, Retention
from dledger.types import Position, Span
from dledger_broker.compacting import compacting as module
from dledger_broker.compacting import superseded
from dledger_broker.compacting.compacting import AGAIN_SECONDS, LOOK_SECONDS, Compacting
from dledger_broker.group.group_view import GroupNames, GroupView
from dledger_broker.read.batches import read_batches
from dledger_proto.batch.codec import BatchView, Record, check_batch, encode_batch
from dledger_proto.errors import DledgerError
from dledger_proto.limits import RETENTION_BY_KEY
from tests.unit.broker.inline import Inline
from tests.unit.broker.virtual_loop import VirtualLoop
from tests.unit.state.kit import TOPIC, Driven, LogWriter, create, started

NAMES = GroupNames("c", "g1", "a", {}, {}, is_control=False)  # type: ignore[arg-type]
PASS = LOOK_SECONDS + AGAIN_SECONDS + 10
QUEUE = (TOPIC, 0)


class WholeLog:
    """Implements `SpanReader` over all entries that a test applied, with what lies between them."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._bytes = bytearray()
        self._taken = 0
        self.space = SimpleNamespace(low=False)

    def read_span(self, span: Span) -> bytes:
        for entry in self._log.entries[self._taken :]:
            for start, payload in zip(entry.starts, entry.payloads, strict=True):
                self._bytes += bytes(start - len(self._bytes)) + payload
        self._taken = len(self._log.entries)
        return bytes(self._bytes[span.position : span.position + span.size])

    def path_of(self, position: Position) -> str:
        return f"log {position}"


def keyed(*records: tuple[str, bytes], number: int = 0) -> bytes:
    """Return a batch of records with one key each; an empty body is a tombstone."""
    made = [Record(body, keys=(key,)) for key, body in records]
    return encode_batch(
        made, topic_id=TOPIC, queue=0, stamp=None, base_number=number, base_time_ms=1
    )


def compacted_topic() -> Driven:
    """Return a machine with one compacted topic of four queues."""
    return started(replace(create(), retention=Retention(RETENTION_BY_KEY)))


@dataclass
class Leader:
    """The view of a leader. Until it is closed, blocks have three rows, and any pass is worth it.

    So few rows are below the newest block.
    """

    driven: Driven = field(default_factory=compacted_topic)
    loop: VirtualLoop = field(default_factory=VirtualLoop)
    names: GroupNames = NAMES
    leads: bool = True
    tombstone_ms: int = 0
    before: Callable[[], None] = lambda: None
    """Called before a command is applied."""
    proposed: list[Command[Any]] = field(default_factory=list[Command[Any]])
    refused: list[Refused] = field(default_factory=list[Refused])
    failures: list[BaseException] = field(default_factory=list[BaseException])

    def __post_init__(self) -> None:
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(tables, "ROWS_PER_BLOCK", 3)
        self._patch.setattr(module, "is_worth_it", lambda _old, new: new > 0)
        self.log = WholeLog(self.driven.log)
        self.pool = Inline()
        self.host = SimpleNamespace(failed=self.failures.append)
        self.clock = self.loop
        self.commands = self
        self.compacting = Compacting(cast("GroupView", self))

    @property
    def machine(self) -> Any:
        return self.driven.machine

    @property
    def now_ms(self) -> int:
        return self.driven.log.time_ms

    async def propose(self, command: Command[Any]) -> Any:
        self.before()
        self.proposed.append(command)
        result = self.driven.one(command)
        if isinstance(result, Refused):
            self.refused.append(result)
            raise DledgerError(result.code, result.detail)
        return result

    def keep(self, time_ms: int) -> None:
        """Give the topic another retention."""
        self.driven.one(UpdateTopic(TOPIC, retention_time_ms=(time_ms,)))

    def hold(self, offset: int) -> None:
        """Somebody reads the queue from an offset on."""
        self.driven.one(Hold("spark", *QUEUE, offset, 1 << 40))

    def in_stretches(self, rows: int, size: int = 1 << 20) -> None:
        """Let a command name so many rows at most, and bring about so many bytes."""
        self._patch.setattr(module, "ROWS_PER_STRETCH", rows)
        self._patch.setattr(module, "COPIES_SIZE_TARGET", size)

    def compare_keys(self, count: int) -> None:
        """Let a pass compare so many keys at most at once."""
        self._patch.setattr(superseded, "KEYS_MAX", count)

    def close(self) -> None:
        self._patch.undo()
        self.loop.close()

    def run(self, seconds: float = PASS) -> None:
        """Let time pass; whoever leads begins with nothing in memory."""
        self.compacting = Compacting(cast("GroupView", self))
        self.loop.run_for(seconds, self.compacting.run())

    # What a reader sees.

    def rows(self) -> list[QueueSpan]:
        """Return all rows from the minimum on."""
        queries = self.driven.machine.queries
        at, end = queries.queue_bounds(*QUEUE)
        found: list[QueueSpan] = []
        while at < end:
            spans = queries.spans(*QUEUE, at, 1 << 40)
            assert spans[0].base_offset <= at
            for before, after in pairwise(spans):
                assert before.base_offset + before.record_count == after.base_offset
            found += spans
            at = spans[-1].base_offset + spans[-1].record_count
        assert at == end or not found
        return found

    def records(self) -> dict[int, Record]:
        """Return by offset what the queue holds, from checked bytes."""
        minimum, _ = self.driven.machine.queries.queue_bounds(*QUEUE)
        spans = self.rows()
        found: dict[int, Record] = {}
        for span, batch in zip(spans, read_batches(self.log, spans), strict=True):
            if span.is_gone:
                continue
            assert check_batch(batch).record_count >= span.first_record + span.record_count
            view = BatchView(batch)
            for record in range(span.record_count):
                offset = span.base_offset + record
                if offset >= minimum:
                    found[offset] = view.record(span.first_record + record)
        return found


def bodies(records: dict[int, Record]) -> dict[int, bytes]:
    """Return only the bodies."""
    return {offset: record.body for offset, record in records.items()}


def fill(driven: Driven, count: int, keys: Sequence[str] = ("filler",)) -> None:
    """Append batches of one record, so that what was there is below the newest block."""
    for number in range(count):
        driven.append(keyed((keys[number % len(keys)], b"f%d" % number)))
