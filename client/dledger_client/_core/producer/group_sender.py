"""One broker group as a producer sees it: its link, its epoch, tries and their answers. Pure.

Owns: when a link is opened, changed or given up; which batches a frame takes; registration and
epochs. Not: what an answer does to its batch (`batch_fate.py`), topics, queues and routes
(`core.py`), order within a queue (`lane.py`), the network.

A link goes to the group's leader. While the leader cannot be reached, it goes to another member,
which forwards. Three things end the tries on their way over a link, with an unknown outcome: the
stream breaks, the member does not answer a try in time, or the producer hears elsewhere of a leader
of a higher term (D10). The producer then repeats every batch that may be stored, with its old
stamp, and the group stores it once.

The producer asks for a new epoch when the group does not know it (any more), and when a lane must
be fenced. It asks when no try is on its way, and sends nothing until the epoch is granted.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from dledger_client._core.producer import actions
from dledger_client._core.producer.batch import Batch
from dledger_client._core.producer.batch_fate import BatchFate
from dledger_client._core.producer.context import ProducerContext
from dledger_client._core.producer.epoch import Epoch, EpochState
from dledger_client._core.producer.link import Link, LinkState, Try
from dledger_client._core.retry import (
    BACKOFF_MAX,
    backoff,
    final_error,
    plan_for,
    try_deadline,
)
from dledger_client._core.routes import GroupRoute, RefreshRoutes
from dledger_client.errors import ClientError, client_error, error_of
from dledger_proto.batch.codec import ProducerStamp
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import FRAME_SIZE_TARGET
from dledger_proto.rpc.frames import AnswerRow, encode_append

REGISTER_GRACE = 1.0
"""Seconds beyond the time of one try after which a registration counts as unanswered."""
SUSPECT_AFTER = 0.4
"""After so many seconds without an answer other members are asked who leads. Elections take 0.5
to 1 s."""
SUSPECT_INTERVAL = 0.15
MEMBERS_NAMED_MAX = 8
"""Members that an error names; a batch may be tried more often."""


class GroupSender:
    """One broker group."""

    def __init__(self, name: str, context: ProducerContext) -> None:
        self.name = name
        self._context = context
        self._lanes = context.buffer.group(name)
        self.link: Link | None = None
        self.epoch = Epoch()
        self._fate = BatchFate(name, context, self._give_up)
        self._open_at = 0.0
        self._open_tries = 0
        self._fatal: ClientError | None = None

    @property
    def has_work(self) -> bool:
        """True: something gathers, waits or is on its way."""
        return self._lanes.has_work

    def route(self) -> GroupRoute | None:
        """Return the group's route."""
        return self._context.routes.group(self.name)

    def pump(self, now: float) -> None:
        """Open, change or close the link; register. Called after every input."""
        link = self.link
        if link is not None and link.state is LinkState.UP and not self._is_best(link, now):
            link.state = LinkState.DRAINING
        if link is not None and link.state is LinkState.DRAINING and not link.tries:
            self._close("another member is asked")
            link = None
        if not self._lanes.has_work:
            return
        if self._fatal is not None:
            self.fail_all(self._fatal)
        elif link is None and now >= self._open_at:
            self._open(now)
        elif link is not None and link.state is LinkState.UP:
            self._register(link, now)

    def _is_best(self, link: Link, now: float) -> bool:
        route = self.route()
        if route is None or not route.has_leader or route.leader_address == link.address:
            return True
        members = self._context.members
        return members.is_avoided(route.leader_address, now) or not members.is_ready(
            route.leader_address
        )

    def _open(self, now: float) -> None:
        route = self.route()
        address = self._context.members.choose(route, now) if route is not None else ""
        if route is None or not address:
            self._open_at = now + BACKOFF_MAX
            self._context.emit(RefreshRoutes())
            return
        link = Link(self._context.new_link_id(), self.name, address, route.term, now)
        self.link = link
        self._context.emit(actions.OpenLink(link.id, self.name, address))

    def _register(self, link: Link, now: float) -> None:
        config = self._context.config
        if not config.idempotent or not self._context.producer_id:
            return
        if self._lanes.fence_wanted:
            self.epoch.invalidate()
        if self._lanes.outstanding == 0 and self.epoch.may_ask(now):
            timeout = config.connection.try_timeout_ms / 1_000 + REGISTER_GRACE
            ask = self.epoch.ask(now, timeout)
            self._context.emit(actions.Register(self.name, link.address, self.epoch.wanted, ask))

    def link_up(self, now: float) -> None:
        """Take in that the stream is open."""
        link = self.link
        assert link is not None, f"{self.name}: no link"
        if link.state is LinkState.CONNECTING:
            link.state = LinkState.UP
            self._context.members.set_ready(link.address, is_ready=True)
        self.pump(now)

    def link_down(self, error: DledgerError, now: float) -> None:
        """Take in that the stream broke, or could not be opened."""
        link = self.link
        assert link is not None, f"{self.name}: no link"
        self._context.members.failed(link.address, now)
        self._open_tries += 1
        tries = len((self.route() or _NO_ROUTE).members) or 1
        if self._open_tries >= tries:
            # All members were tried: pause before the next round.
            self._open_at = now + backoff(self._open_tries - tries, self._context.generator)
        self._give_up_tries(error.detail or error.code.name, now)
        self.link = None

    def _close(self, reason: str) -> None:
        link = self.link
        assert link is not None, f"{self.name}: no link"
        self._context.emit(actions.CloseLink(link.id, reason))
        self.link = None

    def abandon(self, reason: str, now: float) -> None:
        """Give up the link and its tries as unknown, and repeat them over a new one at once."""
        if self.link is not None:
            self._give_up_tries(reason, now)
            self._close(reason)
        self._open_at = now

    def _give_up_tries(self, reason: str, now: float) -> None:
        link = self.link
        assert link is not None, f"{self.name}: no link"
        error = error_of(Code.UNKNOWN_OUTCOME, f"{link.address}: {reason}")
        failed, link.tries = link.tries, deque()
        for each in failed:
            self._fate.unanswered(each.batch, error, now)

    def leader_changed(self, now: float) -> None:
        """Take in that the routes name another leader, or a higher term, than before."""
        route = self.route()
        if route is None or not route.has_leader:
            return
        self._context.members.worked(route.leader_address)
        self._open_at = self.epoch.ask_at = now
        for lane in self._lanes.active:
            if lane.prefix < len(lane.stamped):
                lane.stamped[lane.prefix].retry_at = now
            elif lane.ready:
                lane.ready[0].retry_at = now
        link = self.link
        if link is None or link.address == route.leader_address:
            if link is not None:
                link.term = max(link.term, route.term)
        elif route.term > link.term or link.state is LinkState.CONNECTING:
            self.abandon(f"{route.leader} leads in term {route.term}", now)
        # An equal term and another address: `pump` changes over when the tries are answered.

    def next_frame(self, now: float, wall_ms: int) -> bytes | None:
        """Return what to send next over the link; None when nothing may be sent now."""
        link = self.link
        if link is None or link.state is not LinkState.UP or self._fatal is not None:
            return None
        room = self._context.config.in_flight_bytes - self._lanes.outstanding_bytes
        if room > 0 and self._may_send:
            taken = self._take(now, wall_ms, min(room, FRAME_SIZE_TARGET), one_way=False)
            if taken:
                return self._frame(link, taken, now)
        taken = self._take(now, wall_ms, FRAME_SIZE_TARGET, one_way=True)
        if not taken:
            return None
        first = link.next_number
        link.next_number += len(taken)
        for batch, _ in taken:
            self._context.buffer.settle_one_way(batch)
        return encode_append(
            [data for _, data in taken], first, self._context.config.connection.try_timeout_ms, True
        )

    @property
    def _may_send(self) -> bool:
        return not self._context.config.idempotent or (
            self.epoch.state is EpochState.GRANTED and not self._lanes.fence_wanted
        )

    def due_at(self) -> float | None:
        """Return when time alone makes a batch due."""
        link = self.link
        if link is None or link.state is not LinkState.UP:
            return None
        return self._context.buffer.due_at(self.name)

    def _frame(self, link: Link, taken: list[tuple[Batch, bytes]], now: float) -> bytes:
        first = link.next_number
        timeout = self._context.config.connection.try_timeout_ms / 1_000
        earliest = min(batch.deadline for batch, _ in taken)
        for batch, _ in taken:
            if len(batch.members_tried) < MEMBERS_NAMED_MAX:
                batch.members_tried.append(link.address)
            link.tries.append(
                Try(link.next_number, batch, now, try_deadline(now, batch.deadline, timeout))
            )
            link.next_number += 1
        timeout_ms = max(1, int(min(timeout, earliest - now) * 1_000))
        return encode_append([data for _, data in taken], first, timeout_ms)

    def _take(
        self, now: float, wall_ms: int, bytes_max: int, *, one_way: bool
    ) -> list[tuple[Batch, bytes]]:
        context = self._context
        taken: list[tuple[Batch, bytes]] = []
        for batch in context.buffer.take(self.name, now, one_way=one_way, bytes_max=bytes_max):
            if batch.base_number < 0:
                batch.base_number = 0 if one_way else context.take_numbers(batch.count)
            stamp = None
            if context.config.idempotent and not one_way:
                stamp = ProducerStamp(context.producer_id, self.epoch.number, batch.base_sequence)
            base_time_ms = wall_ms - int((now - batch.created_at) * 1_000)
            try:
                data = batch.encode(stamp, max(base_time_ms, 0), context.config.compression)
            except DledgerError as error:
                self._refuse_unsent(batch, client_error(error), one_way=one_way)
                continue
            taken.append((batch, data))
        return taken

    def _refuse_unsent(self, batch: Batch, error: ClientError, *, one_way: bool) -> None:
        buffer = self._context.buffer
        if one_way:
            buffer.settle_one_way(batch)
            return
        buffer.end_try(batch)
        self._fate.fail(batch, error)

    def answered(self, rows: Iterable[AnswerRow], now: float) -> None:
        """Take in answers, in the order of their numbers. Rows of unknown tries are ignored."""
        link = self.link
        assert link is not None, f"{self.name}: no link"
        self._open_tries = 0
        hint: AnswerRow | None = None
        switch = False
        for row in rows:
            if not link.tries or row.number < link.tries[0].number:
                continue  # it was given up before
            if row.number > link.tries[0].number:
                self.link_down(
                    error_of(
                        Code.INTERNAL, f"it answered try {row.number} before {link.tries[0].number}"
                    ),
                    now,
                )
                self._context.emit(actions.CloseLink(link.id, "answers out of order"))
                return
            plan = self._fate.answered(link.tries.popleft(), row, link.address, now)
            if row.code is Code.NOT_LEADER and row.hint:
                hint = row
            switch = switch or plan.switch_member
        if hint is not None:
            self._context.heard_leader(self.name, hint.hint, hint.term, now)
        if switch and self.link is link:
            self._change_member(link, now)
        self.pump(now)

    def _change_member(self, link: Link, now: float) -> None:
        """Ask another member from now on: this one does not take anything."""
        route = self.route()
        if route is not None and len(route.members) > 1:
            self._context.members.failed(link.address, now)
            if link.state is LinkState.UP:
                link.state = LinkState.DRAINING

    def _give_up(self, error: ClientError) -> None:
        """Take nothing for this group any more: another life of the producer has taken over."""
        self._fatal = error
        self.fail_all(error)

    def fail_all(self, error: ClientError) -> None:
        """Give up everything of this group; what may be stored ends as unknown."""
        if self.link is not None:
            self.link.tries.clear()
        for batch, lane in list(self._context.buffer.unsettled.items()):
            if lane.group == self.name:
                unknown = batch.maybe_stored or batch.is_outstanding
                end = final_error(batch, error.detail or "given up") if unknown else error.again()
                self._fate.fail(batch, end)

    def registered(
        self, ask: int, epoch: int, last: Mapping[tuple[bytes, int], int], now: float
    ) -> None:
        """Take in a new epoch, and the last sequences of the one before it (if it was ours)."""
        if not self.epoch.is_awaited(ask):
            return
        follows = self.epoch.grant(epoch)
        self._context.buffer.new_epoch(
            self.name,
            last if follows else {},
            lambda batch: final_error(batch, "the group does not remember this producer"),
        )
        self.pump(now)

    def register_taken(self, ask: int, epoch: int, now: float) -> None:
        """Take in that another life holds an epoch: take over from it."""
        if self.epoch.is_awaited(ask):
            self.epoch.taken(epoch, now)
            self.pump(now)

    def register_failed(self, ask: int, error: ClientError, now: float) -> None:
        """Take in that a registration failed, or may have."""
        if not self.epoch.is_awaited(ask):
            return
        if error.code is not Code.STALE_EPOCH:
            self.epoch.fail(now, self._context.generator)
            ends = error.definite and not error.retriable
        else:
            ends = self.epoch.stale(now, self._context.generator)
        if ends:
            self._give_up(error)
            return
        for batch, lane in self._context.buffer.unsettled.items():
            if lane.group == self.name and not batch.tries:
                batch.last_error = error  # when time runs out, it says why
        if self.link is not None and plan_for(error.code).switch_member:
            self._change_member(self.link, now)
        self.pump(now)

    def check_tries(self, now: float) -> None:
        """Give up the link when its oldest try, or its opening, is not answered in time."""
        link = self.link
        if link is None:
            return
        connect = self._context.config.connection.connect_timeout_ms / 1_000
        if link.state is LinkState.CONNECTING:
            late = now >= link.opened_at + connect
        else:
            late = bool(link.tries) and now >= link.tries[0].deadline
        if link.tries and now >= self._suspicion(link):
            link.suspect_at = now + SUSPECT_INTERVAL
            self._context.emit(RefreshRoutes())
        if late:
            reason = f"{link.address}: no answer in time"
            self.link_down(error_of(Code.UNKNOWN_OUTCOME, reason), now)
            self._context.emit(actions.CloseLink(link.id, reason))
        if self.epoch.state is EpochState.ASKED and now >= self.epoch.answer_until:
            late_answer = error_of(Code.UNKNOWN_OUTCOME, "no answer in time")
            self.register_failed(self.epoch.asks, late_answer, now)

    @staticmethod
    def _suspicion(link: Link) -> float:
        """Return when the oldest try is so slow that another member may lead by now."""
        return max(link.tries[0].sent_at + SUSPECT_AFTER, link.suspect_at)

    def next_check(self, now: float) -> float | None:
        """Return when `check_tries` or `pump` has to be called next."""
        times: list[float] = []
        link = self.link
        if link is None:
            if self._lanes.has_work and self._fatal is None:
                times.append(self._open_at)
        elif link.state is LinkState.CONNECTING:
            times.append(
                link.opened_at + self._context.config.connection.connect_timeout_ms / 1_000
            )
        elif link.tries:
            times += (link.tries[0].deadline, self._suspicion(link))
        epoch_at = self.epoch.next_check() if link is not None else None
        if epoch_at is not None and epoch_at > now:
            times.append(epoch_at)
        return min(times, default=None)


_NO_ROUTE = GroupRoute("", 0, "", "", (), control=False)
