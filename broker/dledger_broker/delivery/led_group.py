"""One consumer group at the leader of its coordinator: it ends sessions, and deals out queues.

Owns the turn that follows every change: end the sessions that are over, take queues back, propose
who should have what. One turn is under way at a time, so an assignment never overtakes another.
All that a turn decides is decided by pure code (`sessions.py`, `planning.py`); a turn that is
refused, or of which nothing is known, is taken again. Not: the streams (`session_stream.py`).
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final

import structlog

from dledger.state.commands.command import Command
from dledger.state.consumers.granting import GiveBack, Held
from dledger.state.consumers.membership import EndSessions, Session
from dledger.state.consumers.settings import GroupSettings
from dledger.state.consumers.table import ConsumerGroup, QueueKey
from dledger.state.values import Topic
from dledger_broker.delivery.planning import plan
from dledger_broker.delivery.sessions import GRACE_SECONDS, Sessions
from dledger_broker.delivery.subscribed import Subscription, queues_of
from dledger_broker.group.group_view import GroupView
from dledger_proto.errors import DledgerError
from dledger_proto.limits import QUEUES_PER_CALL_MAX

if TYPE_CHECKING:
    from dledger_broker.delivery.session_stream import SessionStream

AGAIN_SECONDS: Final = 0.5
"""After a proposal that was not stored."""


class LedGroup:
    """One consumer group, for as long as this member leads."""

    def __init__(self, view: GroupView, retry: Topic, settings: GroupSettings) -> None:
        self._view = view
        self.retry = retry
        """The topic that is the consumer group, as it is now."""
        self.settings = settings
        self.sessions = Sessions(view.clock.monotonic())
        self.streams: dict[str, SessionStream] = {}
        self.problems: list[str] = []
        self._subscription = Subscription(())
        self._topics: dict[bytes, Topic] = {}
        self._news: dict[bytes, Topic] = {}
        """Topics that changed since the last turn: at most one row of each topic."""
        self._given: dict[Session, dict[QueueKey, int]] = {}
        """Queues that sessions gave back, with the epochs of their grants."""
        self._leaving: dict[Session, None] = {}
        self._stale = True
        """Who should have what is to be computed again."""
        self._wake = asyncio.Event()
        self._log = structlog.get_logger().bind(consumer_group=retry.name)

    @property
    def rows(self) -> ConsumerGroup:
        """The consumers and grants as applied here."""
        return self._view.machine.queries.consumers(self.retry.topic_id)

    @property
    def session_seconds(self) -> float:
        """How long a consumer may be silent."""
        return self.settings.session_ms / 1_000

    @property
    def is_empty(self) -> bool:
        """True: there is nothing to do."""
        has_work = self._stale or bool(self.rows.consumers)
        return not self.streams and (self.retry.deleted or not has_work)

    # What streams tell. None of it waits.

    def opened(self, stream: "SessionStream") -> None:
        """A consumer joined by this stream; an older stream of it ends."""
        now = self._view.clock.monotonic()
        old = self.streams.get(stream.consumer)
        self.streams[stream.consumer] = stream
        self.sessions.opened(stream.consumer, stream.joined, now, self.session_seconds)
        if old is not None:
            old.wake()
        self._wake.set()

    def spoke(self, stream: "SessionStream") -> None:
        """The consumer of a stream said something."""
        now = self._view.clock.monotonic()
        self.sessions.spoke(stream.consumer, stream.joined, now, self.session_seconds)

    def closed(self, stream: "SessionStream", *, is_static: bool) -> None:
        """A stream ended; another one may have its consumer now."""
        if self.streams.get(stream.consumer) is stream:
            del self.streams[stream.consumer]
        seconds = self.session_seconds if is_static else GRACE_SECONDS
        now = self._view.clock.monotonic()
        self.sessions.closed(stream.consumer, stream.joined, now, seconds)
        self._wake.set()

    def gave_back(self, session: Session, queues: dict[QueueKey, int]) -> None:
        """A consumer gives queues back."""
        grants = self.rows.grants
        held = {
            key: epoch
            for key, epoch in queues.items()
            if key in grants
            and (grants[key].holder, grants[key].epoch) == (session.consumer, epoch)
        }
        if held:
            self._given.setdefault(session, {}).update(held)
            self._wake.set()

    def leaves(self, session: Session) -> None:
        """A consumer ends its session."""
        self._leaving[session] = None
        self._wake.set()

    def unassigned(self) -> list[QueueKey]:
        """Return the queues that are subscribed to, and that should be nobody's as it is now."""
        grants = self.rows.grants
        queues = queues_of([*self._topics.values(), self.retry])
        keys = {QueueKey(queue.topic_id, queue.number) for queue in queues}
        return sorted(key for key in keys if key not in grants or not grants[key].target)

    def nudge(self) -> int:
        """Tell all connected consumers to claim their queues again; return how many."""
        for stream in self.streams.values():
            stream.nudge()
        return len(self.streams)

    # What apply tells. It is noted; the turn looks.

    def rows_changed(self) -> None:
        """Consumers or grants changed."""
        self._stale = True
        self._tell()

    def topic_changed(self, topic: Topic) -> None:
        """A topic changed or was deleted."""
        if topic.topic_id == self.retry.topic_id:
            self.retry = topic
            self.settings = topic.consumer_group or self.settings
        else:
            if self._subscription.may_mean(topic) or topic.topic_id in self._topics:
                self._news[topic.topic_id] = topic
                self._wake.set()
            return
        self._stale = True
        self._tell()

    def _tell(self) -> None:
        self._wake.set()
        for stream in self.streams.values():
            stream.wake()

    # The turn.

    async def run(self, ended: Callable[["LedGroup"], None]) -> None:
        """Take turns until there is nothing to do; `ended` is called then."""
        while not self.is_empty:
            self._wake.clear()
            try:
                wait = await self._turn()
            except DledgerError as error:
                self._log.info("consumers not coordinated", reason=str(error))
                self._stale = True
                wait = AGAIN_SECONDS
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                continue
        ended(self)

    async def _turn(self) -> float:
        """Do what is due; return for how long nothing else is."""
        if self.retry.deleted:
            self._stale = False
            return inf if self.streams else 0.0
        now = self._view.clock.monotonic()
        over = self.sessions.over(self.rows.consumers, now, self.session_seconds)
        over += [session for session in self._leaving if session not in over]
        if over:
            await self._propose(EndSessions(self.retry.topic_id, tuple(over)))
            for session in over:
                self._leaving.pop(session, None)
        await self._take_back()
        await self._take_news()
        if self._stale:
            self._stale = False
            await self._assign()
        if not self.rows.consumers:
            return inf
        return max(0.0, self.sessions.look_by - self._view.clock.monotonic())

    async def _take_back(self) -> None:
        while self._given:
            session, queues = next(iter(self._given.items()))
            some = list(queues.items())[:QUEUES_PER_CALL_MAX]
            consumer = self.rows.consumers.get(session.consumer)
            if consumer is not None and consumer.joined == session.joined:
                held = tuple(Held(*key, epoch) for key, epoch in some)
                await self._propose(GiveBack(self.retry.topic_id, *session, held))
            for key, epoch in some:
                if queues.get(key) == epoch:
                    del queues[key]
            if not queues:
                del self._given[session]

    async def _take_news(self) -> None:
        """Look which of the topics that changed the group wants."""
        while self._news:
            topic_id, topic = self._news.popitem()
            if self._subscription.wants(topic):
                self._topics[topic_id] = topic
            elif self._topics.pop(topic_id, None) is None:
                await self._subscription.give_way()
                continue
            self._stale = True
            await self._subscription.give_way()

    async def _assign(self) -> None:
        rows = self.rows
        if tuple(self._subscription.subscribed) != rows.epochs.subscriptions:
            self._subscription = Subscription(rows.epochs.subscriptions)
            # What changes meanwhile is news, for the next turn.
            self._topics = await self._subscription.topics(self._view.machine.queries.topics())
        planned = plan(rows, self.settings, self.retry, self._topics)
        if list(planned.problems) != self.problems:
            self.problems = list(planned.problems)
            for problem in self.problems:
                self._log.warning("queues are not dealt out as they should be", reason=problem)
        if planned.command is not None:
            await self._propose(planned.command)
            self._log.info(
                "queues dealt out", consumers=len(rows.consumers), queues=len(rows.grants)
            )

    async def _propose(self, command: Command[object]) -> None:
        await self._view.commands.propose(command)
