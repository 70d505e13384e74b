"""The consumer groups that one broker group coordinates, while this member leads it.

Owns the term: which consumer groups are led here, and that none is led before everything that
earlier leaders stored is applied. Events of apply and changes of leadership wake what they concern.
Not: the turn of one consumer group (`led_group.py`), sessions' streams (`session_stream.py`).
"""

import asyncio
from typing import Final

import structlog

from dledger.raft.api import Leadership, Role
from dledger.raft.driver.tasks import end_task
from dledger.state.consumers.settings import GroupSettings
from dledger.state.events import Applied
from dledger.state.queries import Queries
from dledger.state.results import Joined
from dledger.state.values import Topic
from dledger_broker.delivery.joining import join_command
from dledger_broker.delivery.led_group import LedGroup
from dledger_broker.delivery.session_stream import SessionStream
from dledger_broker.group.group_view import GroupView
from dledger_broker.process.tasks import start_running
from dledger_proto.errors import Code, DledgerError
from dledger_proto.names import RETRY_TOPIC_PREFIX, check_group_name
from dledger_proto.v1 import delivery_pb2 as pb

CONFIRM_SECONDS: Final = 5.0
"""How long a new leader waits for all of its state, before it tries again."""


class Coordinator:
    """The coordinator's work of one member for one broker group."""

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self._led: dict[bytes, LedGroup] = {}
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        self._term = -1
        """The term in which this member leads; -1: it does not."""
        self._begin: asyncio.Task[None] | None = None
        self._log = structlog.get_logger().bind(group=view.names.group)

    @property
    def queries(self) -> Queries:
        """The state of the broker group."""
        return self._view.machine.queries

    def start(self) -> None:
        """Begin to listen."""
        self._view.machine.events.subscribe(self._applied)
        self._view.host.watch_leadership(self._leadership_changed)
        self._leadership_changed(self._view.host.leadership)

    async def stop(self) -> None:
        """End all streams: the process ends."""
        self._end_term(DledgerError(Code.SHUTTING_DOWN, "the member is ending"))
        await end_task(self._begin)

    def session(self) -> SessionStream:
        """Return a new stream."""
        return SessionStream(self)

    def name_of(self, group: LedGroup) -> str:
        """Return the name of a consumer group."""
        return group.retry.name.removeprefix(RETRY_TOPIC_PREFIX)

    def find(self, name: str) -> tuple[Topic, GroupSettings]:
        """Return a consumer group that is coordinated here.

        Raises CONSUMER_GROUP_NOT_FOUND, or WRONG_GROUP naming its coordinator.
        """
        check_group_name("consumer_group", name)
        topic = self.queries.topic_by_name(RETRY_TOPIC_PREFIX + name)
        if topic is None or topic.consumer_group is None:
            raise DledgerError(
                Code.CONSUMER_GROUP_NOT_FOUND, f"consumer group {name!r} does not exist"
            )
        if topic.consumer_group.coordinator != self._view.names.group:
            raise DledgerError(
                Code.WRONG_GROUP,
                f"consumer group {name} is coordinated by broker group "
                f"{topic.consumer_group.coordinator}",
            )
        return topic, topic.consumer_group

    def led(self, topic: Topic, settings: GroupSettings) -> LedGroup:
        """Return a consumer group as led here, which begins now unless it did before."""
        if not self._view.leads or self._term != self._view.host.leadership.term:
            raise self._view.not_leader()
        found = self._led.get(topic.topic_id)
        if found is None:
            found = self._led[topic.topic_id] = LedGroup(self._view, topic, settings)
            led = found
            self._tasks[topic.topic_id] = start_running(
                lambda: led.run(self._ended), f"consumers of {topic.name}"
            )
        return found

    def led_by_name(self, name: str) -> LedGroup:
        """Return a consumer group as led here; see `find`."""
        return self.led(*self.find(name))

    async def join(self, request: pb.Join) -> tuple[LedGroup, Joined]:
        """Take a consumer into its group."""
        if not self._view.leads:
            raise self._view.not_leader()
        await self._view.confirm()
        topic, settings = self.find(request.consumer_group)
        command = await join_command(self.queries, request, topic.topic_id, settings)
        joined = await self._view.commands.propose(command)
        return self.led_by_name(request.consumer_group), joined

    # Leadership and events.

    def _leadership_changed(self, leadership: Leadership) -> None:
        if leadership.role is Role.LEADER:
            if leadership.term != self._term:
                self._end_term(self._view.not_leader())
                self._term = leadership.term
                self._begin = start_running(self._begin_term, "consumer groups of a new leader")
        elif self._term != -1:
            self._end_term(self._view.not_leader())

    def _end_term(self, error: DledgerError) -> None:
        self._term = -1
        if self._begin is not None:
            self._begin.cancel()
        for task in self._tasks.values():
            task.cancel()
        for group in self._led.values():
            for stream in group.streams.values():
                stream.end(error)
        self._tasks, self._led = {}, {}

    async def _begin_term(self) -> None:
        """Lead every consumer group that has consumers: their times begin."""
        await self._view.confirm(CONFIRM_SECONDS)
        for group_id in self.queries.joined_groups():
            topic = self.queries.topic_by_id(group_id)
            if topic is not None and not topic.deleted and topic.consumer_group is not None:
                self.led(topic, topic.consumer_group)

    def _ended(self, group: LedGroup) -> None:
        self._led.pop(group.retry.topic_id, None)
        self._tasks.pop(group.retry.topic_id, None)

    def _applied(self, applied: Applied) -> None:
        if self._term == -1:
            return
        for topic in applied.topics:
            for group in self._led.values():
                group.topic_changed(topic)
        for group_id in applied.consumer_groups:
            if group_id in self._led:
                self._led[group_id].rows_changed()
