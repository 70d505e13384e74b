"""A subscription of a consumer that polls: what it has read, what it commits.

Owns: which records count as done, what is told to the user's `on_assigned` and `on_revoked`. Not:
when commits leave (`_core/group/commits.py`).

The records of a poll are done when the next poll begins, or when the user commits. A queue that the
group asks back waits for the next poll, too: until then its records are in the user's hands.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dledger_client._core.consumer.state import Place
from dledger_client._core.group.actions import Failed, Why
from dledger_client._core.group.queues import HeldQueue
from dledger_client._shell.group.membership import Membership
from dledger_client.errors import ClientError, error_of
from dledger_client.records import RecordBatch
from dledger_proto.errors import Code
from dledger_proto.v1 import delivery_pb2

if TYPE_CHECKING:
    from dledger_client._shell.consumer import ConsumerEngine

Listener = Callable[[list[Place]], object]
"""Gets (topic, queue) pairs; for asyncio it may be a coroutine function."""


@dataclass(slots=True)
class Changes:
    """What the user has not been told yet."""

    revoked: list[HeldQueue] = field(default_factory=list)
    lost: list[Place] = field(default_factory=list)
    """Also revoked, but nothing can be committed any more."""
    assigned: list[Place] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.revoked or self.lost or self.assigned)


class Over(NamedTuple):
    """Why a claim is over."""

    code: Code
    position: int
    """Behind what was handed out."""
    is_open: bool
    """Not all of that was committed."""


class Polling:
    """The queues that a group gave to one consumer that polls."""

    def __init__(
        self, engine: "ConsumerEngine", subscriptions: Sequence[delivery_pb2.Subscription]
    ) -> None:
        self._engine = engine
        self.membership = Membership(
            engine.cluster, engine.queries, engine.config, subscriptions, self
        )
        self._held: dict[Place, HeldQueue] = {}
        self._read_to: dict[HeldQueue, int] = {}
        """Behind what was handed out of revoked queues."""
        self._over: dict[Place, Over] = {}
        """Claims that ended since the last poll, while the user had records of them."""
        self._changes = Changes()
        self._timers: dict[HeldQueue, asyncio.TimerHandle] = {}
        self.error: ClientError | None = None

    # What the group says.

    def start_queue(self, held: HeldQueue) -> None:
        """Read a queue from its floor on."""
        self._held[held.place] = held
        core = self._engine.core
        core.assign(held.place, held.topic_id, held.group, held.progress.floor)
        if held.place not in self._changes.assigned:
            self._changes.assigned.append(held.place)
        self._engine.wake()

    def stop_queue(self, held: HeldQueue, why: Why) -> None:
        """Hand out nothing more of a queue; the next poll lets it go."""
        if self._held.get(held.place) is not held:
            if why is not Why.REVOKED and held in self._read_to:
                self._note_over(held, why)
            self._forget(held)
            self.membership.let_go(held)  # its beginning was not found yet, or it is lost
            return
        del self._held[held.place]
        position = self._position(held)
        if why is not Why.REVOKED:
            self._note_over(held, why)
        self._engine.core.unassign(held.place)
        if why is not Why.RESET and held.place in self._changes.assigned:
            self._changes.assigned.remove(held.place)  # it was never told of
            self.membership.let_go(held)
        elif why is Why.REVOKED:
            self._read_to[held] = position
            self._changes.revoked.append(held)
            seconds = self._engine.config.revoke_timeout_ms / 1_000
            loop = self.membership.driver.loop
            self._timers[held] = loop.call_later(seconds, self._let_go, held)
        elif why is Why.LOST:
            self._changes.lost.append(held.place)
        self._engine.wake()

    def _note_over(self, held: HeldQueue, why: Why) -> None:
        position = self._position(held)
        code = Code.OFFSET_RESET if why is Why.RESET else Code.FENCED
        self._over[held.place] = Over(code, position, is_open=position > held.progress.floor)

    def _forget(self, held: HeldQueue) -> None:
        """A queue that waits to be let go is lost meanwhile."""
        self._read_to.pop(held, None)
        timer = self._timers.pop(held, None)
        if timer is not None:
            timer.cancel()

    def failure_stored(self, told: Failed) -> None:
        """Do nothing: who polls tells of no failures."""

    def group_ended(self, error: ClientError) -> None:
        """Raise the error at the next poll."""
        self.error = error
        self._engine.wake()

    # What the user does.

    @property
    def has_changes(self) -> bool:
        """True: the user has to be told something."""
        return bool(self._changes) or self.error is not None

    def check(self) -> None:
        """Raise why the consumer is in its group no more."""
        if self.error is not None:
            raise self.error.again()

    def done_with_poll(self) -> None:
        """Take in that the user is done with all records that were handed out."""
        self._over.clear()
        if self._engine.config.commit_interval_ms:
            for held in [*self._held.values(), *self._read_to]:
                held.progress.done_below(self._position(held))

    def take_revoked(self) -> list[Place]:
        """Return the queues that were taken away since the last call."""
        changes = self._changes
        self._changes = Changes(assigned=changes.assigned)
        return [held.place for held in changes.revoked] + changes.lost

    def take_assigned(self) -> list[Place]:
        """Return the queues that were given since the last call."""
        assigned, self._changes.assigned = self._changes.assigned, []
        return assigned

    def let_go(self) -> None:
        """Give back what was revoked: the user was told."""
        for held in list(self._timers):
            if held not in self._changes.revoked:
                self._let_go(held)

    def _let_go(self, held: HeldQueue) -> None:
        self._note_over(held, Why.REVOKED)
        self._forget(held)
        self.membership.let_go(held)

    def cut(self, runs: Iterable[RecordBatch]) -> list[RecordBatch]:
        """Return runs without the records that are done already."""
        left: list[RecordBatch] = []
        for run in runs:
            held = self._held.get((run.topic, run.queue))
            if held is not None:
                self._over.pop(held.place, None)
                left += [
                    run.part(first, end)
                    for first, end in held.progress.take(run.base_offset, run.next_offset)
                ]
        return left

    def seek(self, offsets: Mapping[Place, int]) -> None:
        """Take in that queues are read on at other offsets."""
        for place, offset in offsets.items():
            held = self._held.get(place)
            if held is not None:
                held.progress.seek(offset)

    def undo(self, place: Place, position: int) -> None:
        """Take in that nobody got the records of a queue from an offset on."""
        held = self._held.get(place)
        if held is not None:
            held.progress.taken = min(held.progress.taken, position)
        for each, read_to in self._read_to.items():
            if each.place == place:
                self._read_to[each] = min(read_to, position)

    def _position(self, held: HeldQueue) -> int:
        if held in self._read_to:
            return self._read_to[held]
        return self._engine.core.read(held.place).position

    def hold_back(self, now: float) -> None:
        """Keep back queues whose lease is about to end, or whose topic was deleted."""
        for place, held in self._held.items():
            read = self._engine.core.read(place)
            read.is_held_back = read.is_gone or not held.may_hand_out(now)

    async def commit(self, offsets: Mapping[Place, int]) -> None:
        """Commit offsets, and wait until they are stored. What is refused keeps back no other."""
        ends = await self._ends(offsets)
        mine = {held.place: held for held in [*self._read_to, *self._held.values()]}
        refused: list[ClientError] = []
        taken: list[HeldQueue] = []
        for place, offset in offsets.items():
            held = mine.get(place)
            error = self._refusal(place, held, offset, ends.get(place))
            if error is not None:
                refused.append(error)
            elif held is not None:
                held.progress.done_below(offset)
                taken.append(held)
        await self.membership.commit(taken)
        if refused:
            raise refused[0]

    async def _ends(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """Return where queues end of which an offset lies behind all that was fetched."""
        beyond = [
            held.place
            for held in self._held.values()
            if offsets.get(held.place, 0) > self._engine.core.read(held.place).fetch_at
        ]
        found = await self._engine.queries.bounds(beyond) if beyond else {}
        return {place: bounds.maximum for place, bounds in found.items()}

    def _refusal(
        self, place: Place, held: HeldQueue | None, offset: int, end: int | None
    ) -> ClientError | None:
        name, over = f"{place[0]}/{place[1]}", self._over.get(place)
        if over is not None and over.code is Code.OFFSET_RESET:
            return error_of(over.code, f"{name}: its offset was reset since its records were read")
        if over is not None:
            return error_of(over.code, f"{name}: the group took it from this consumer")
        if held is None:
            return error_of(Code.FENCED, f"{name}: the group did not give it to this consumer")
        if offset < held.progress.floor:
            return error_of(
                Code.OFFSET_BEHIND,
                f"{name}: offset {offset} is below {held.progress.floor}, which is done",
            )
        if end is not None and offset > end:
            return error_of(
                Code.OFFSET_OUT_OF_RANGE, f"{name}: offset {offset}, the queue ends at {end}"
            )
        return None

    def done_below(self, place: Place) -> int:
        """Return the offset below which everything of a held queue is done; 0: it is not held."""
        held = self._held.get(place)
        return 0 if held is None else held.progress.floor

    def positions(self) -> dict[Place, int]:
        """Return behind what was handed out of each queue, also of those lost since."""
        found = {
            held.place: self._position(held) for held in [*self._read_to, *self._held.values()]
        }
        for place, over in self._over.items():
            if over.is_open:
                found[place] = over.position
            else:
                found.pop(place, None)
        return found

    async def close(self, *, is_done: bool) -> None:
        """Commit what is done, give all queues back, leave; `is_done`: so is the last poll."""
        if is_done:
            self.done_with_poll()
        core = self.membership.core
        if self.membership.driver.is_started:
            core.close(self.membership.driver.now())
            self.membership.driver.advance()
            for held in list(self._timers):
                self._let_go(held)
        await self.membership.leave(self._engine.config.connection.call_timeout_ms / 1_000)
