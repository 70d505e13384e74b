"""Batches of a producer that have no outcome yet: lanes by group, bytes, deadlines. Pure.

Owns: the buffer's bytes, the fair round over a group's lanes, which batches make the next frame,
batches whose budget is over. Not: order within a queue (`lane.py`), links (`group_sender.py`),
codes (`batch_fate.py`), topics (`core.py`). Time comes in as `now`, monotonic seconds.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from dledger_client._core.producer.batch import Batch
from dledger_client._core.producer.lane import GatherLimits, Lane
from dledger_client.errors import ClientError
from dledger_proto.batch.codec import Record
from dledger_proto.limits import FRAME_ROWS_MAX

LaneKey = tuple[bytes, int, str, bool]
"""Topic id, queue, group, one-way. A queue that returns to a group continues its sequence."""


class GroupLanes:
    """The lanes of one broker group."""

    def __init__(self) -> None:
        self.active: deque[Lane] = deque()
        """Lanes with work, each once, in the order of their turns."""
        self.outstanding_bytes = 0
        self.outstanding = 0
        self.fence_wanted = False
        """A lane can only go on in a new epoch."""

    def activate(self, lane: Lane) -> None:
        """Give a lane with work its place in the round."""
        if not lane.is_active:
            lane.is_active = True
            self.active.append(lane)

    @property
    def has_work(self) -> bool:
        """True: some lane gathers, waits or has batches on their way."""
        self._retire()
        return bool(self.active)

    def _retire(self) -> None:
        while self.active and self.active[0].is_idle:
            self.active.popleft().is_active = False


class SendBuffer:
    """All batches of a producer that have no outcome yet."""

    def __init__(self, limits: GatherLimits) -> None:
        self.limits = limits
        self.buffered_bytes = 0
        """Upper bound of the encoded bytes of all unsettled batches."""
        self.unsettled: dict[Batch, Lane] = {}
        self._lanes: dict[LaneKey, Lane] = {}
        self._groups: dict[str, GroupLanes] = {}
        self._deadlines: list[tuple[float, int, Batch]] = []
        self._serial = itertools.count()

    def group(self, name: str) -> GroupLanes:
        """Return the lanes of a group."""
        lanes = self._groups.get(name)
        if lanes is None:
            lanes = self._groups[name] = GroupLanes()
        return lanes

    def groups(self) -> Iterator[tuple[str, GroupLanes]]:
        """Iterate over the groups that lanes were made for."""
        return iter(self._groups.items())

    def lane(
        self,
        topic: str,
        topic_id: bytes,
        queue: int,
        group: str,
        *,
        is_one_way: bool,
        is_fifo: bool = False,
        priority: int = 0,
    ) -> Lane:
        """Return the lane of a queue in a group."""
        key = (topic_id, queue, group, is_one_way)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(
                topic, topic_id, queue, group,
                is_one_way=is_one_way, is_fifo=is_fifo, priority=priority,
            )  # fmt: skip
        return lane

    def forget_topic(self, topic_id: bytes) -> None:
        """Drop the lanes of a topic that was deleted; their batches still get their outcomes."""
        for key in [key for key in self._lanes if key[0] == topic_id]:
            del self._lanes[key]

    def append(
        self,
        lane: Lane,
        record: Record,
        size: int,
        deadline: float,
        now: float,
        *,
        movable: bool,
        delivery_time_ms: int = 0,
    ) -> Batch:
        """Add a record to its lane; return its batch (the record is the last one in it)."""
        batch, is_new = lane.append(record, size, deadline, now, self.limits, delivery_time_ms)
        if is_new:
            self._enter(lane, batch)
        else:
            self.buffered_bytes += size
        if not movable:
            batch.is_movable = False
        return batch

    def append_batch(
        self,
        lane: Lane,
        records: Sequence[Record],
        size: int,
        deadline: float,
        now: float,
        *,
        movable: bool,
        delivery_time_ms: int = 0,
    ) -> Batch:
        """Add records as a batch of their own, closed."""
        batch = lane.append_batch(records, size, deadline, now)
        batch.is_movable = movable
        batch.delivery_time_ms = delivery_time_ms
        self._enter(lane, batch)
        return batch

    def _enter(self, lane: Lane, batch: Batch) -> None:
        self.unsettled[batch] = lane
        self.buffered_bytes += batch.size
        heapq.heappush(self._deadlines, (batch.deadline, next(self._serial), batch))
        if not lane.is_active:
            self.group(lane.group).activate(lane)

    def take(self, name: str, now: float, *, one_way: bool, bytes_max: int) -> list[Batch]:
        """Return, sent, what the next frame of a group holds: lanes in turn, up to `bytes_max`.

        A single batch may be larger. One-way batches leave their lanes and are outstanding nowhere;
        the caller settles them.
        """
        group = self.group(name)
        taken: list[Batch] = []
        used = 0
        misses = 0
        while misses < len(group.active) and len(taken) < FRAME_ROWS_MAX:
            lane = group.active[0]
            if lane.is_idle:
                group.active.popleft()
                lane.is_active = False
                continue
            batch = lane.next_due(now, self.limits) if lane.is_one_way is one_way else None
            if batch is None:
                group.active.rotate(-1)
                misses += 1
                continue
            if taken and used + batch.size > bytes_max:
                break
            lane.send(batch)
            if not one_way:
                group.outstanding += 1
                group.outstanding_bytes += batch.size
            taken.append(batch)
            used += batch.size
            misses = 0
            group.active.rotate(-1)
        return taken

    def due_at(self, name: str) -> float | None:
        """Return when time alone makes a batch of a group due; 0: one is due; None: none."""
        times = [
            time
            for lane in self.group(name).active
            if (time := lane.due_at(self.limits)) is not None
        ]
        return min(times, default=None)

    def lane_of(self, batch: Batch) -> Lane:
        """Return the lane that holds an unsettled batch."""
        return self.unsettled[batch]

    def _answered(self, batch: Batch, lane: Lane) -> None:
        group = self.group(lane.group)
        group.outstanding -= 1
        group.outstanding_bytes -= batch.size

    def _changed(self, lane: Lane) -> None:
        if not self.limits.is_sequenced:
            lane.forget_gap()
        lane.close_gap()
        if lane.must_fence:
            self.group(lane.group).fence_wanted = True

    def fence(self, batch: Batch) -> None:
        """Ask for a new epoch before anything else of the batch's queue is sent."""
        lane = self.unsettled[batch]
        lane.must_fence = True
        self._changed(lane)

    def end_try(self, batch: Batch) -> None:
        """Note that the try of `batch` that was on its way ended without storing it for certain."""
        lane = self.unsettled[batch]
        self._answered(batch, lane)
        lane.end_try(batch)
        self._changed(lane)

    def stored(
        self,
        batch: Batch,
        base_offset: int,
        index: int,
        term: int,
        *,
        duplicate: bool,
        before_sync: bool,
    ) -> None:
        """Settle an outstanding batch as stored."""
        lane = self.unsettled[batch]
        self._answered(batch, lane)
        lane.remove(batch)
        self._changed(lane)
        self._forget(batch)
        batch.settle_stored(base_offset, index, term, duplicate=duplicate, before_sync=before_sync)

    def settle_one_way(self, batch: Batch) -> None:
        """Settle a one-way batch that was handed to the network: no answer will come."""
        self._forget(batch)
        batch.settle_stored(-1, 0, 0, duplicate=False, before_sync=True)

    def failed(self, batch: Batch, error: ClientError) -> None:
        """Give up a batch, wherever it is."""
        lane = self.unsettled[batch]
        if batch.is_outstanding:
            self._answered(batch, lane)
        lane.drop(batch)
        self._changed(lane)
        self._forget(batch)
        batch.settle_failed(error)

    def move(self, batch: Batch, target: Lane) -> None:
        """Move a batch that is certainly not stored to another lane of its topic."""
        lane = self.unsettled[batch]
        assert not batch.maybe_stored, f"{batch.describe()}: may be stored where it is"
        lane.drop(batch)
        self._changed(lane)
        batch.move_to(target.topic_id, target.queue, target.group)
        self.unsettled[batch] = target
        target.adopt(batch)
        self.group(target.group).activate(target)

    def new_epoch(
        self,
        name: str,
        last: Mapping[tuple[bytes, int], int],
        unknown_error: Callable[[Batch], ClientError],
    ) -> None:
        """Begin a new epoch in a group that has nothing outstanding.

        `last`: the last sequence stored under the epoch before, by (topic id, queue); of a queue
        that is missing nothing is known (see `Lane.new_epoch`).
        """
        group = self.group(name)
        assert group.outstanding == 0, f"{group.outstanding} batches of {name} are on their way"
        lanes = [lane for lane in self._lanes.values() if lane.group == name]
        for lane in dict.fromkeys([*lanes, *group.active]):
            if lane.is_one_way:
                continue
            stored, unknown = lane.new_epoch(last.get((lane.topic_id, lane.queue)))
            for batch in stored:
                self._forget(batch)
                batch.settle_stored(-1, 0, 0, duplicate=True, before_sync=False)
            for batch in unknown:
                self._forget(batch)
                batch.settle_failed(unknown_error(batch))
        group.fence_wanted = False

    def _forget(self, batch: Batch) -> None:
        del self.unsettled[batch]
        self.buffered_bytes -= batch.size

    def expired(self, now: float) -> list[Batch]:
        """Return the unsettled batches whose budget is over and that no try can settle."""
        over: list[Batch] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, serial, batch = heapq.heappop(self._deadlines)
            if batch.is_settled:
                continue
            if batch.is_outstanding:
                heapq.heappush(self._deadlines, (now + EXPIRY_RECHECK, serial, batch))
                continue
            over.append(batch)
        return over

    def next_expiry(self) -> float | None:
        """Return when `expired` has to be asked next."""
        while self._deadlines and self._deadlines[0][2].is_settled:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def close_open(self) -> None:
        """Let everything that gathers be sent without waiting for more."""
        for _, group in self.groups():
            for lane in group.active:
                lane.close_open()

    def check(self) -> None:
        """Assert every invariant; tests call it after each step."""
        assert self.buffered_bytes == sum(batch.size for batch in self.unsettled)
        for name, group in self.groups():
            lanes = [lane for lane in {*self.unsettled.values()} if lane.group == name]
            outstanding = [
                batch for lane in lanes for batch in lane.stamped if batch.is_outstanding
            ]
            assert group.outstanding == len(outstanding), f"{group.outstanding} in {name}"
            assert group.outstanding_bytes == sum(batch.size for batch in outstanding)
            assert all(lane.is_active for lane in lanes), f"{name}: a lane with work is asleep"
            for lane in lanes:
                lane.check()


EXPIRY_RECHECK = 0.05
"""Seconds until a batch whose budget is over, with a try on its way, is looked at again."""
