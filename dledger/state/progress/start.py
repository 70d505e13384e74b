"""Where a consumer group begins in a queue that it has no floor of (S103, S104).

Owns: the rule, and BeginQueues, which applies it for a group that begins last.

start      begins at
---------  ---------------------------------------------------------------------------------
first      the queue's minimum, also when its head is trimmed
time       the first record stored at `start_time_ms` or later, by leader stamps
last       the first record stored since the group wanted the queue; else the queue's end
...        the minimum, when all that the queue holds was stored after the group was created
any        the minimum, in the group's own retry topic

The coordinator knows since when a group wants a queue: since the Join that brought the
subscription. The home group's leader asks it before the first claim, and turns the answer into the
time of its own stamps. Who is not told so begins at the queue's end.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from dledger.state.commands.codec import Int64, UInt32
from dledger.state.commands.command import Command
from dledger.state.consumers.settings import GroupSettings, StartFrom
from dledger.state.offsets import check_consumer_group
from dledger.state.progress.dead_letters import check_no_dead_letters
from dledger.state.progress.group import Group, existing_group
from dledger.state.progress.row import Progress
from dledger.state.queues.table import Queue, QueueTable
from dledger.state.results import QueuesBegun, Refused
from dledger.types import Entry
from dledger_proto.errors import DledgerError

if TYPE_CHECKING:
    from dledger.state.state import State

ROWS_PER_BEGIN: Final = 64
"""Progress, queue, and the steps of a search by time."""


class NewQueue(NamedTuple):
    """A queue, and since when a consumer group wants it, by the home group's stamps."""

    topic_id: bytes
    queue: UInt32
    since_ms: Int64

    def describe(self) -> str:
        """Return one word."""
        return f"{self.topic_id.hex()}/{self.queue}+{self.since_ms}"


@dataclass(frozen=True, slots=True)
class BeginQueues(Command[QueuesBegun]):
    """Decide where a group that begins last begins; a queue that has a floor keeps it."""

    NUMBER: ClassVar = 34

    consumer_group: str
    queues: tuple[NewQueue, ...]

    @property
    def rows_read_max(self) -> int:
        return ROWS_PER_BEGIN * len(self.queues)

    def apply(self, state: "State", entry: Entry) -> QueuesBegun | Refused:
        """Write floors; pass over queues that cannot be served."""
        check_consumer_group(self.consumer_group)
        group = existing_group(state.topics, self.consumer_group)
        return QueuesBegun(sum(self._begin(state, group, item) for item in self.queues))

    def _begin(self, state: "State", group: Group, item: NewQueue) -> bool:
        try:
            check_no_dead_letters(group, item.topic_id)
            queue = state.queue(item.topic_id, item.queue)
        except DledgerError:
            return False
        if state.progress.read(group.id, group.name_bytes, queue.id) is not None:
            return False
        floor = start_offset(group, state.queues, queue, item.since_ms)
        state.progress.write(group.id, group.name_bytes, queue.id, Progress(floor))
        return True


def start_offset(group: Group, queues: QueueTable, queue: Queue, since_ms: int = 0) -> int:
    """Return the first offset to consume; `since_ms` 0: nobody knows since when it is wanted."""
    settings: GroupSettings = group.settings
    if queue.id[0] == group.id or settings.start is StartFrom.FIRST:
        return queue.minimum
    if settings.start is StartFrom.TIME:
        return queues.offset_by_time(queue, settings.start_time_ms)
    if _is_younger(queues, queue, settings.start_time_ms):
        return queue.minimum
    return queues.offset_by_time(queue, since_ms) if since_ms else queue.maximum


def _is_younger(queues: QueueTable, queue: Queue, created_ms: int) -> bool:
    """Tell whether all that a queue holds was stored after a group was created."""
    if not created_ms or queue.minimum == queue.maximum:
        return False
    return queues.row_at(queue, queue.minimum).store_time_ms >= created_ms
