"""What clients can do with messages, as plain calls: the one core under every API (D12).

Owns: producers, offsets, commits, lookups. Not owned: the wire (`rpc/`), batches on their way
(`append/`, `read/`), topics (`cluster/topic_authority.py`). A member gives a refusal that old state
could cause only after it has read confirmed state (D10).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from dledger.state.offsets import METADATA_SIZE_MAX, CommitOffset
from dledger.state.producers.registration import RegisterProducer
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.ranges import RANGES_MAX
from dledger.state.queues.trim import Trim
from dledger.state.results import OffsetsCommitted, Registered, Taken, Trimmed
from dledger.state.values import PERMISSION_READ, Topic
from dledger_broker.append.write_rule import WriteRule
from dledger_broker.group.group_view import CONFIRM_SECONDS, GroupView
from dledger_broker.read.lookups import Found, Lookups
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import QUEUES_PER_TOPIC_MAX
from dledger_proto.names import check_client_id, check_group_name

ID_SIZE: Final = 16
"""The size of the ids of topics, producers and their lives."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue, resolved."""

    topic_id: bytes
    number: int


class Messaging:
    """The use cases of one group."""

    def __init__(self, view: GroupView) -> None:
        self.view = view
        self.write_rule = WriteRule(view)
        self.lookups = Lookups(view)
        self.explaining = asyncio.Semaphore(1)
        """One page of a story at a time: fetches need the pool, too."""

    async def resolve(self, topic: str, topic_id: bytes, queue: int) -> Queue:
        """Return the queue named by a topic's name or id.

        TOPIC_NOT_FOUND, and NO_PERMISSION to read it, when confirmed.
        """
        if queue >= QUEUES_PER_TOPIC_MAX:
            raise DledgerError(
                Code.QUEUE_NOT_FOUND, f"queue {queue}, must be below {QUEUES_PER_TOPIC_MAX}"
            )
        find, sentence = partial(self._topic_of_name, topic), _no_topic(topic)
        if topic_id:
            check_id("topic_id", topic_id)
            find = partial(self._live_topic, topic_id)
            sentence = f"no topic has the id {topic_id.hex()}"
        known = await self.confirmed(lambda: _readable(find()), Code.TOPIC_NOT_FOUND, sentence)
        return Queue(known.topic_id, queue)

    async def topic_now(self, name: str, seconds: float = CONFIRM_SECONDS) -> Topic:
        """Return a topic as it is at the time of the call (D10); TOPIC_NOT_FOUND."""
        await self.view.confirm(seconds)
        topic = self.view.machine.queries.topic_by_name(name)
        if topic is None:
            raise DledgerError(Code.TOPIC_NOT_FOUND, _no_topic(name))
        return topic

    async def topic_named(self, name: str) -> Topic:
        """Return a topic by name; TOPIC_NOT_FOUND when confirmed."""
        return await self.confirmed(
            partial(self._topic_of_name, name), Code.TOPIC_NOT_FOUND, _no_topic(name)
        )

    def _topic_of_name(self, name: str) -> Topic | None:
        return self.view.machine.queries.topic_by_name(name)

    def _live_topic(self, topic_id: bytes) -> Topic | None:
        topic = self.view.machine.queries.topic_by_id(topic_id)
        return None if topic is None or topic.deleted else topic

    async def confirmed(
        self, read: Callable[[], T | None], missing: Code = Code.NOT_FOUND, sentence: str = ""
    ) -> T:
        """Read; read again on confirmed state when nothing is found or the read is refused."""
        try:
            found = read()
        except DledgerError:
            found = None
        if found is None:
            await self.view.confirm()
            found = read()
        if found is None:
            raise DledgerError(missing, sentence or "nothing is stored under this name")
        return found

    async def register_producer(
        self, producer_id: bytes, life_id: bytes, epoch: int, user: str = ""
    ) -> Registered | Taken:
        """Give a producer's life an epoch, or tell which epoch it would take over from (D11).

        The producer belongs to `user` from then on; NO_PERMISSION when it is another's.
        """
        check_id("producer_id", producer_id)
        check_id("life_id", life_id)
        command = RegisterProducer(producer_id, life_id, epoch, user)
        return await self.view.commands.propose(command)

    async def queue_offsets(
        self, queues: Sequence[Queue], *, linearizable: bool
    ) -> list[tuple[int, int]]:
        """Return minimum and maximum of each queue; a quorum confirms them when `linearizable`."""
        if linearizable:
            await self.view.confirm()
        return [await self.bounds(queue) for queue in queues]

    async def bounds(self, queue: Queue) -> tuple[int, int]:
        """Return minimum and maximum of a queue."""
        return await self.confirmed(
            lambda: self.view.machine.queries.queue_bounds(queue.topic_id, queue.number)
        )

    async def offset_by_time(self, queue: Queue, time_ms: int) -> int:
        """Return the offset of the first record stored at or after `time_ms`."""
        await self.view.confirm()
        return self.view.machine.queries.offset_by_time(queue.topic_id, queue.number, time_ms)

    async def commit_offsets(
        self,
        consumer_group: str,
        offsets: Sequence[CommitOffset],
        *,
        reset: bool,
        member_id: str,
    ) -> OffsetsCommitted:
        """Store the next offset to consume of each queue; each queue is refused alone (I14)."""
        check_group_name("consumer_group", consumer_group)
        check_client_id("member_id", member_id)
        for item in offsets:
            if item.offset < 0 or len(item.metadata.encode()) > METADATA_SIZE_MAX:
                raise invalid(
                    f"queue {item.queue}: offset {item.offset} must be 0 or more, metadata of "
                    f"{len(item.metadata)} characters at most {METADATA_SIZE_MAX} bytes"
                )
            if len(item.done) > RANGES_MAX:
                raise invalid(
                    f"queue {item.queue}: {len(item.done)} done ranges, at most {RANGES_MAX}"
                )
        command = CommitOffsets(consumer_group, tuple(offsets), reset=reset, member_id=member_id)
        return await self.view.commands.propose(command)

    async def read_offsets(
        self, consumer_group: str, queues: Sequence[Queue]
    ) -> list[tuple[int, str]]:
        """Return offset and metadata of each queue, -1 without one; a quorum confirms them."""
        check_group_name("consumer_group", consumer_group)
        await self.view.confirm()
        found: list[tuple[int, str]] = []
        for queue in queues:
            stored = self.view.machine.queries.read_group_offset(
                consumer_group, queue.topic_id, queue.number
            )
            found.append((-1, "") if stored is None else (stored.offset, stored.metadata))
        return found

    async def lookup_offset(self, queue: Queue, offset: int) -> Found:
        """Return the record at an offset; OFFSET_OUT_OF_RANGE when confirmed."""
        span = await self.confirmed(
            lambda: self.view.machine.queries.lookup_offset(queue.topic_id, queue.number, offset)
        )
        return await self.lookups.at(queue.topic_id, queue.number, offset, span)

    async def trim(self, queue: Queue, offset: int) -> Trimmed:
        """Move a queue's minimum up to `offset`, or to the lowest hold, which the result names.

        HELD when a hold does not let the minimum move at all.
        """
        return await self.view.commands.propose(Trim(queue.topic_id, queue.number, offset))


def check_id(name: str, value: bytes) -> None:
    """Raise INVALID_ARGUMENT unless `value` can be an id."""
    if len(value) != ID_SIZE or not any(value):
        raise invalid(f"{name} of {len(value)} bytes: must be {ID_SIZE}, not all zero")


def _no_topic(name: str) -> str:
    return f"topic {name!r} does not exist"


def _readable(topic: Topic | None) -> Topic | None:
    """Return a topic that may be read; NO_PERMISSION."""
    if topic is not None and not topic.permission & PERMISSION_READ:
        raise DledgerError(Code.NO_PERMISSION, f"topic {topic.name} may not be read")
    return topic
