"""The way of batches into one group: proposed here, forwarded once, or parked during an election.

Owns the order of batches between the streams and the log, and what becomes of a batch at a member
that does not lead (D10). Not owned: reading and answering streams (`append.stream`), the fate of a
batch (the Raft group and the state machine), retries (the client alone retries).

The router proposes everything that arrives within one turn of the loop together, so that the
group's cost is per turn and not per batch. The router never sends a batch again that it proposed or
handed to another member: the client gets UNKNOWN_OUTCOME when the outcome is not known.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from dledger.clock import Clock
from dledger.raft.api import Leadership, Role
from dledger.raft.commit.proposals import portions
from dledger.raft.driver.host import GroupHost
from dledger.state.results import Appended, Refused
from dledger.types import EntryKind, MemberId, Settled
from dledger_broker.group.group_view import GroupNames
from dledger_broker.metrics.meters import GroupMeters
from dledger_proto.batch.header import TOPIC_ID_AT
from dledger_proto.errors import Code, Outcome
from dledger_proto.network.tls import Callee
from dledger_proto.rpc.frames import AnswerRow

PARKED_TICK_SECONDS: Final = 0.02
"""How often the router looks for batches whose deadline passed while they waited for a leader."""


class Answerable(Protocol):
    """What waits for the answer to a batch."""

    def answered(self, item: "PendingBatch", /) -> None:
        """Take the answer: the batch's `row` is set."""
        ...


class PendingBatch:
    """One batch that is not answered yet. `row` is its answer once there is one."""

    __slots__ = ("batch", "deadline", "number", "owner", "row", "size")

    def __init__(self, batch: memoryview, number: int, deadline: float, owner: Answerable) -> None:
        self.batch: memoryview = batch
        self.number = number
        self.deadline = deadline
        self.size = len(batch)
        self.owner = owner
        self.row: AnswerRow | None = None

    def answer(self, row: AnswerRow) -> None:
        """Answer the batch, and release its bytes."""
        assert self.row is None, f"append {self.number} answered twice"
        self.row = row
        self.batch = _NOTHING
        self.owner.answered(self)

    def refuse(self, code: Code, detail: str = "", *, hint: str = "", term: int = 0) -> None:
        """Answer the batch with a code."""
        self.answer(AnswerRow(number=self.number, code=code, detail=detail, hint=hint, term=term))


_NOTHING: Final = memoryview(b"")


Forward = Callable[[Callee, Sequence[PendingBatch]], None]
"""Sends batches in order to the leader; each is answered exactly once."""


class AppendRouter:
    """The batches of one group. All methods on the loop's thread."""

    def __init__(
        self,
        host: GroupHost,
        names: GroupNames,
        forward: Forward,
        clock: Clock,
        meters: GroupMeters,
    ) -> None:
        self._host = host
        self._meters = meters
        self._names = names
        self._forward = forward
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._staged: list[PendingBatch] = []
        self._staged_forwarded: list[PendingBatch] = []
        self._scheduled = False
        self._parked: deque[PendingBatch] = deque()
        self._parked_timer: asyncio.TimerHandle | None = None
        self._stopping = False
        host.watch_leadership(self._leadership_changed)

    def submit(self, items: Sequence[PendingBatch], *, forwarded: bool) -> None:
        """Take batches in order; each is answered exactly once.

        `forwarded` batches came from another member: this member proposes them, or refuses them
        with NOT_LEADER.
        """
        (self._staged_forwarded if forwarded else self._staged).extend(items)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def reroute(self, items: Sequence[PendingBatch]) -> None:
        """Take back what the forwarder could not send, in front of the batches that wait."""
        if self._stopping:
            self._park(items)
            return
        self._parked.extendleft(reversed(items))
        self._park(())

    def stop(self) -> None:
        """Refuse the batches that wait for a leader, and every batch that comes later."""
        self._stopping = True
        self._flush()
        while self._parked:
            self._parked.popleft().refuse(Code.SHUTTING_DOWN, "the member is draining")

    def _flush(self) -> None:
        self._scheduled = False
        forwarded, self._staged_forwarded = self._staged_forwarded, []
        if forwarded:
            if self._host.leadership.role is Role.LEADER:
                self._propose(forwarded, forwarded=True)
            else:
                self._refuse_not_leader(forwarded)
        staged, self._staged = self._staged, []
        if staged:
            self._route(staged)

    def _route(self, items: list[PendingBatch]) -> None:
        if self._parked:
            self._park(items)  # behind the batches that wait already
            return
        leadership = self._host.leadership
        if leadership.role is Role.LEADER:
            self._propose(items, forwarded=False)
        elif leadership.leader not in (None, self._names.member) and not self._stopping:
            assert leadership.leader is not None
            self._forward(self._names.callee(MemberId(leadership.leader)), items)
        else:
            self._park(items)

    def _refuse_not_leader(self, items: Sequence[PendingBatch]) -> None:
        leadership = self._host.leadership
        leader = leadership.leader
        hint = self._names.clients.get(MemberId(leader), "") if leader is not None else ""
        detail = f"leader is {leader or 'not known'} in term {leadership.term}"
        for item in items:
            item.refuse(Code.NOT_LEADER, detail, hint=hint, term=leadership.term)

    def _propose(self, items: list[PendingBatch], *, forwarded: bool) -> None:
        if len(items) == 1:
            self._propose_portion(items, forwarded=forwarded)
            return
        for portion in portions([item.size for item in items]):
            self._propose_portion(items[portion], forwarded=forwarded)

    def _propose_portion(self, items: list[PendingBatch], *, forwarded: bool) -> None:
        self._host.propose_nowait(
            EntryKind.BATCHES,
            [item.batch for item in items],
            partial(self._settled, items, forwarded, self._clock.monotonic()),
        )

    def _settled(
        self, items: list[PendingBatch], forwarded: bool, began: float, settled: Settled
    ) -> None:
        if settled.outcome is not Outcome.NOT_STORED:
            self._meters.append_seconds.add(self._clock.monotonic() - began)
        if settled.outcome is Outcome.STORED:
            self._stored(items, settled)
        elif settled.outcome is Outcome.UNKNOWN:
            for item in items:
                item.refuse(Code.UNKNOWN_OUTCOME, settled.detail, term=settled.term)
        elif settled.code in _NEVER_PROPOSED and not settled.index:
            if forwarded:
                self._refuse_not_leader(items)
            elif self._host.leadership.role is Role.LEADER:
                # The Raft group lost leadership, and its host has not noticed yet; or the group is
                # handing leadership over. It would refuse every new proposal at once, again and
                # again.
                self._park(items)
            else:
                self._route(items)
        else:
            for item in items:
                item.refuse(settled.code, settled.detail, term=settled.term)

    def _stored(self, items: list[PendingBatch], settled: Settled) -> None:
        index, term, early = settled.index, settled.term, self._host.counts_unsynced
        for item, result in zip(items, settled.results, strict=True):
            if isinstance(result, Appended):
                if not result.duplicate:
                    topic_id = bytes(item.batch[TOPIC_ID_AT])
                    self._meters.batch_stored(topic_id, result.record_count, item.size)
                item.answer(
                    AnswerRow(
                        number=item.number,
                        code=Code.OK,
                        duplicate=result.duplicate,
                        unsynced=early,
                        base_offset=result.base_offset,
                        index=index,
                        term=term,
                    )
                )
            else:
                assert isinstance(result, Refused), f"a batch gave {result!r}"
                item.refuse(result.code, result.detail, term=term)

    def _park(self, items: Sequence[PendingBatch]) -> None:
        if self._stopping:
            for item in items:
                item.refuse(Code.SHUTTING_DOWN, "the member is draining")
            return
        self._parked.extend(items)
        if self._parked and self._parked_timer is None:
            self._parked_timer = self._loop.call_later(PARKED_TICK_SECONDS, self._expire_parked)

    def _expire_parked(self) -> None:
        self._parked_timer = None
        now = self._clock.monotonic()
        if any(item.deadline <= now for item in self._parked):
            kept: deque[PendingBatch] = deque()
            for item in self._parked:
                if item.deadline <= now:
                    item.refuse(Code.NO_LEADER, "no leader came up before the deadline")
                else:
                    kept.append(item)
            self._parked = kept
        self._leadership_changed(self._host.leadership)
        if self._parked and self._parked_timer is None:
            self._parked_timer = self._loop.call_later(PARKED_TICK_SECONDS, self._expire_parked)

    def _leadership_changed(self, leadership: Leadership) -> None:
        if self._parked and (leadership.role is Role.LEADER or leadership.leader is not None):
            items = list(self._parked)
            self._parked.clear()
            self._route(items)


_NEVER_PROPOSED: Final = (Code.NOT_LEADER, Code.NO_LEADER)
