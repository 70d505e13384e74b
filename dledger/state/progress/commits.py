"""CommitOffsets: what is done in a queue, and resets (S99, S113, I14, D21, D22).

Owns: the rule of a commit. Not: who is refused (`fence.py`), the rows.

A name that is no consumer group's stands for itself: its offsets are in the table of offsets, and
nobody claims. Of a consumer group a commit says what is done: everything below its offset, and its
ranges. What was done before stays done, so two commits may come in any order, and twice. Without a
claim a lower offset is refused OFFSET_BEHIND. Only a reset moves the floor back.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dledger.state.commands.command import Command
from dledger.state.offsets import METADATA_SIZE_MAX, CommitOffset, check_consumer_group
from dledger.state.progress.fence import refusal_of_sender
from dledger.state.progress.group import Group, group_named
from dledger.state.progress.ranges import RANGES_MAX, settled
from dledger.state.progress.row import Progress
from dledger.state.queues.table import Queue
from dledger.state.results import OffsetsCommitted, Refused
from dledger.types import Entry
from dledger_proto.errors import Code, DledgerError

if TYPE_CHECKING:
    from dledger.state.state import State


@dataclass(frozen=True, slots=True)
class CommitOffsets(Command[OffsetsCommitted]):
    """Store a consumer group's offsets; each is taken or refused on its own."""

    NUMBER: ClassVar = 50
    WIRE_ORDER: ClassVar = ("consumer_group", "reset", "member_id", "offsets")

    consumer_group: str
    offsets: tuple[CommitOffset, ...]
    reset: bool = False
    """True: may go back (I14)."""
    member_id: str = ""
    """The consumer that commits; empty: by assignment."""

    @property
    def rows_read_max(self) -> int:
        return 2 * len(self.offsets)

    def apply(self, state: "State", entry: Entry) -> OffsetsCommitted | Refused:
        """Store what may be stored; say of each why not."""
        name = check_consumer_group(self.consumer_group)
        group = group_named(state.topics, self.consumer_group)
        codes: list[Code] = []
        stored: list[int] = []
        done_count = 0
        for item in self.offsets:
            try:
                queue = state.queue(item.topic_id, item.queue)
            except DledgerError as error:
                code, offset = error.code, -1
            else:
                if group is not None:
                    code, offset, count = self._commit(state, group, item, queue, entry.time_ms)
                    done_count += count
                elif item.epoch or item.done:
                    code, offset = Code.CONSUMER_GROUP_NOT_FOUND, -1
                else:
                    code, offset = state.offsets.commit(
                        name, item, queue, entry.time_ms, reset=self.reset
                    )
            codes.append(code)
            stored.append(offset)
        if group is not None and done_count:
            state.waves.finished(group, done_count, entry.time_ms)
        return OffsetsCommitted(tuple(codes), tuple(stored))

    def _commit(
        self, state: "State", group: Group, item: CommitOffset, queue: Queue, time_ms: int
    ) -> tuple[Code, int, int]:
        """Return OK or why not, the floor now (-1: none), and how many records are done by it."""
        row = state.progress.read(group.id, group.name_bytes, queue.id)
        floor = -1 if row is None else row.floor
        code = self._refusal(row, item, queue)
        if item.topic_id == group.settings.dead_letter_topic_id:
            code = Code.INVALID_ARGUMENT  # `SettleDeadLetters` alone says which are settled
        if code is not None:
            return code, floor, 0
        if row is None:
            row = Progress(item.offset)
        before = row.done_count
        if self.reset:
            row.reset(item.offset)
        else:
            floor, done = settled(max(row.floor, item.offset), row.done, item.done)
            if len(done) > RANGES_MAX:
                return Code.TOO_MANY_RANGES, row.floor, 0
            row.finish(floor, done)
        row.committed_ms, row.metadata = time_ms, item.metadata
        state.progress.write(group.id, group.name_bytes, queue.id, row)
        return Code.OK, row.floor, 0 if self.reset else row.done_count - before

    def _refusal(self, row: Progress | None, item: CommitOffset, queue: Queue) -> Code | None:
        if len(item.metadata.encode()) > METADATA_SIZE_MAX:
            return Code.INVALID_ARGUMENT
        if not 0 <= item.offset <= queue.maximum:
            return Code.OFFSET_OUT_OF_RANGE
        if any(not 0 <= first < end for first, end in item.done):
            return Code.INVALID_ARGUMENT
        if any(end > queue.maximum for _, end in item.done):
            return Code.OFFSET_OUT_OF_RANGE
        if self.reset:
            return Code.INVALID_ARGUMENT if item.done else None
        refusal = refusal_of_sender(row, item.epoch, self.member_id, item.resets)
        if refusal is None and not item.epoch and row is not None and item.offset < row.floor:
            return Code.OFFSET_BEHIND
        return refusal
