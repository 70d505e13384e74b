"""ClaimQueues and ReleaseQueues: who may go on in a queue, and where it begins (D21).

Owns: what a claim changes. Not: who is refused (`fence.py`), where a group begins (`start.py`).

A claim writes the row, so a group's first floor is decided once. In an ordered group it begins, or
renews, a lease of `lease_ms`. A group that is paused gets no new claim;
renewals go on, so that a consumer ends what it has in hand.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from dledger.state.commands.codec import UInt32, UInt64
from dledger.state.commands.command import Command
from dledger.state.offsets import check_consumer_group
from dledger.state.progress.dead_letters import check_no_dead_letters
from dledger.state.progress.fence import BY_STAMP, refusal_to_claim
from dledger.state.progress.group import Group, existing_group
from dledger.state.progress.row import Holding, Progress
from dledger.state.progress.start import start_offset
from dledger.state.progress.wave import Pause
from dledger.state.results import Claimed, QueuesClaimed, QueuesReleased, Refused
from dledger.types import Entry
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.names import CLIENT_ID_LENGTH_MAX

if TYPE_CHECKING:
    from dledger.state.state import State

ROWS_PER_CLAIM: Final = 64
"""Progress, queue, and the steps of a search by time."""


class GrantedQueue(NamedTuple):
    """A queue, and the epoch of the grant."""

    topic_id: bytes
    queue: UInt32
    epoch: UInt64

    def describe(self) -> str:
        """Return one word."""
        return f"{self.topic_id.hex()}/{self.queue}#{self.epoch}"


class WantedQueue(NamedTuple):
    """A queue that is claimed, and the epoch of the grant."""

    topic_id: bytes
    queue: UInt32
    epoch: UInt64
    over: UInt64 = 0
    """The index that names the lease of another consumer that is over; 0: none is (`fence.py`)."""

    def describe(self) -> str:
        """Return one word."""
        over = f"-{self.over}" if self.over else ""
        return f"{self.topic_id.hex()}/{self.queue}#{self.epoch}{over}"


@dataclass(frozen=True, slots=True)
class ClaimQueues(Command[QueuesClaimed]):
    """Claim queues for a consumer, or renew its claims; each is taken or refused on its own."""

    NUMBER: ClassVar = 56

    consumer_group: str
    member_id: str
    queues: tuple[WantedQueue, ...]

    @property
    def rows_read_max(self) -> int:
        return ROWS_PER_CLAIM * len(self.queues)

    def apply(self, state: "State", entry: Entry) -> QueuesClaimed | Refused:
        """Claim what may be claimed; say of each why not."""
        check_consumer_group(self.consumer_group)
        check_consumer(self.member_id)
        group = existing_group(state.topics, self.consumer_group)
        pause = state.waves.pause_of(group)
        rows = tuple(self._claim(state, group, pause, item, entry) for item in self.queues)
        return QueuesClaimed(rows, entry.time_ms, "" if pause is None else pause.why)

    def _claim(
        self, state: "State", group: Group, pause: Pause | None, item: WantedQueue, entry: Entry
    ) -> Claimed:
        time_ms = entry.time_ms
        if not item.epoch:
            return Claimed(Code.INVALID_ARGUMENT, "epoch 0, must be that of a grant")
        try:
            check_no_dead_letters(group, item.topic_id)
            queue = state.queue(item.topic_id, item.queue)
        except DledgerError as error:
            return Claimed(error.code, error.detail)
        row = state.progress.read(group.id, group.name_bytes, queue.id)
        if row is None:
            row = Progress(start_offset(group, state.queues, queue))
        refusal = refusal_to_claim(row, item.epoch, self.member_id, item.over, time_ms)
        if refusal is not None:
            return Claimed(
                refusal.code, refusal.detail, row,
                max(row.lease_until_ms - time_ms, 0) if refusal.code is Code.LEASED else 0,
            )  # fmt: skip
        if pause is not None and (item.epoch != row.epoch or row.holding is not Holding.HELD):
            return Claimed(Code.GROUP_PAUSED, f"the group is paused: {pause.why}", row)
        row.epoch, row.consumer, row.holding = item.epoch, self.member_id, Holding.HELD
        lease_ms = group.settings.lease_ms if group.is_ordered else 0
        if lease_ms:
            at = 0 if item.over == BY_STAMP else entry.ref.index
            row.lease(time_ms + lease_ms, at, lease_ms if at else 0)
        else:
            row.end_lease()
        state.progress.write(group.id, group.name_bytes, queue.id, row)
        return Claimed(Code.OK, "", row, lease_ms)


@dataclass(frozen=True, slots=True)
class ReleaseQueues(Command[QueuesReleased]):
    """Give claims back. The epoch stays as a fence; the next claim needs not wait for a lease."""

    NUMBER: ClassVar = 52

    consumer_group: str
    member_id: str
    queues: tuple[GrantedQueue, ...]

    @property
    def rows_read_max(self) -> int:
        return 2 * len(self.queues)

    def apply(self, state: "State", entry: Entry) -> QueuesReleased | Refused:
        """Release; a claim that is another's by now is FENCED, and one given back is given back."""
        check_consumer_group(self.consumer_group)
        group = existing_group(state.topics, self.consumer_group)
        codes = tuple(self._release(state, group, item) for item in self.queues)
        return QueuesReleased(codes)

    def _release(self, state: "State", group: Group, item: GrantedQueue) -> Code:
        try:
            queue = state.queue(item.topic_id, item.queue)
        except DledgerError as error:
            return error.code
        row = state.progress.read(group.id, group.name_bytes, queue.id)
        if row is None or (row.epoch, row.consumer) != (item.epoch, self.member_id):
            return Code.FENCED
        row.holding = Holding.RELEASED
        row.end_lease()
        state.progress.write(group.id, group.name_bytes, queue.id, row)
        return Code.OK


def check_consumer(member_id: str) -> None:
    """Raise INVALID_ARGUMENT unless it can be the id of a consumer that claims."""
    if not 1 <= len(member_id) <= CLIENT_ID_LENGTH_MAX:
        raise invalid(
            f"member_id has {len(member_id)} characters, must be 1 to {CLIENT_ID_LENGTH_MAX}"
        )
