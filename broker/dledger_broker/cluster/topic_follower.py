"""A group takes over what the control group decides about topics (D1), and its users before them.

Owns the loop by which a group's leader fetches decisions. Users come first, so that no topic is
known before who may use it. The loop takes decisions from
the configured control group alone; a notice only makes it ask. Every step is idempotent and carries
the control group's log index, so repeats and reordering do no harm. Not owned: the decisions
(`topic_authority.py`), the rules of a single topic (`dledger/state/topics/`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from dledger.raft.api import Leadership
from dledger.raft.driver.tasks import end_task
from dledger.state.topics.commands import ImportTopic
from dledger.state.values import Topic
from dledger_broker.cluster.channels import GROUP_KEY, Channels
from dledger_broker.cluster.topic_pages import BadPage, check_history, check_page, knows
from dledger_broker.cluster.view import ClusterView
from dledger_broker.process.logs import Quiet
from dledger_broker.process.tasks import start_running
from dledger_broker.rpc.topic_proto import topic_from_proto
from dledger_broker.usecases.messaging import Messaging, check_id
from dledger_broker.users.following import UserFollower
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.network.tls import Callee
from dledger_proto.rpc import raw, status
from dledger_proto.v1 import broker_pb2 as pb

LIST_METHOD: Final = "/dledger.v1.Admin/ListTopics"
PAGE_SECONDS: Final = 2.0
"""How long the leader waits for one member of the control group."""
PULL_SECONDS: Final = 5.0
"""How often a leader asks the control group for new decisions; a new leader asks at once."""
TELL_SECONDS: Final = 60.0
"""A leader that cannot follow logs a line this often; its status says so all the time."""
TOPICS_PER_IMPORT: Final = 256
FINAL_REFUSALS: Final = (Code.STALE_LAYOUT, Code.TOPIC_NOT_FOUND, Code.INVALID_ARGUMENT)
"""Refusals that no repeat changes: known or forgotten already, deleted for good, bad layout."""


async def import_topics(
    messaging: Messaging, topics: Sequence[Topic], control_id: bytes
) -> list[DledgerError]:
    """Take over decisions of the control group of this id; older ones than known are passed over.

    Return the refusals of topics that this group will never take over. It took over all others.
    DledgerError for any other failure: then some decisions may not have been taken over.
    """
    view = messaging.view
    queries = view.machine.queries
    # Known decisions are not stored again: a leader asks for all, and its disk may be low.
    news = [topic for topic in topics if not knows(queries, topic.topic_id, topic.control_index)]
    results = await view.commands.propose_all([ImportTopic(topic, control_id) for topic in news])
    refused: list[DledgerError] = []
    for result in results:
        if isinstance(result, DledgerError):
            if result.code not in FINAL_REFUSALS:
                raise result
            refused.append(result)
    return [error for error in refused if error.code is not Code.STALE_LAYOUT]


class TopicFollower:
    """Keeps a group that is not the control group up to date while this member leads it."""

    def __init__(
        self,
        messaging: Messaging,
        control_group: str,
        cluster_view: ClusterView,
        channels: Channels,
    ) -> None:
        self._messaging = messaging
        self._control_group = control_group
        self._cluster = cluster_view
        self._channels = channels
        self._users = UserFollower(messaging.view, control_group, channels)
        self._log = structlog.get_logger()
        self._quiet = Quiet(messaging.view.clock, TELL_SECONDS)
        self._wake = asyncio.Event()
        self._waiting: list[asyncio.Future[str]] = []
        """Callers that wait for the end of the next pull; each hears why it failed, else ''."""
        self._complete_up_to = 0
        """All decisions up to this index are known; a new leader begins at 0."""
        self._problem = ""
        self._task: asyncio.Task[None] | None = None
        messaging.view.host.watch_leadership(self._leadership_changed)

    @property
    def problem(self) -> str:
        """Why this leader does not follow the control group; empty when it does."""
        return self._problem if self._messaging.view.leads else ""

    def complete_up_to(self) -> int:
        """Return the index up to which this group knows all decisions of the control group.

        0 when this member does not lead, or has not pulled everything in its term.
        """
        return self._complete_up_to if self._messaging.view.leads else 0

    def start(self) -> None:
        """Begin to follow."""
        self._task = start_running(self._run, "topics")

    async def stop(self) -> None:
        """End."""
        await end_task(self._task)

    async def pull(self, topic_id: bytes, control_index: int, seconds: float) -> None:
        """Ask the control group now; return when this group knows a decision about a topic.

        INVALID_ARGUMENT when the control group has not decided so, UNAVAILABLE when the control
        group does not answer in time.
        """
        check_id("topic_id", topic_id)
        queries = self._messaging.view.machine.queries
        if knows(queries, topic_id, control_index):
            return
        await self._pulled(seconds)
        if not knows(queries, topic_id, control_index):
            raise invalid(
                f"topic {topic_id.hex()}, control index {control_index}: {self._control_group} "
                "has not decided so, or it was refused here"
            )

    async def pull_users(self, revision: int, seconds: float) -> None:
        """Ask the control group now; return when this group knows a list of users. As `pull`."""
        queries = self._messaging.view.machine.queries
        if queries.users_revision >= revision:
            return
        await self._pulled(seconds)
        if queries.users_revision < revision:
            raise invalid(
                f"revision {revision} of the users: {self._control_group} has "
                f"{queries.users_revision}"
            )

    async def _pulled(self, seconds: float) -> None:
        """Wait for the end of a pull that begins now; UNAVAILABLE when it fails."""
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._wake.set()
        try:
            async with asyncio.timeout(seconds):
                problem = await done
        except TimeoutError:
            problem = f"the control group was not followed within {seconds:.1f} s"
        finally:
            if done in self._waiting:
                self._waiting.remove(done)
        if problem:
            raise DledgerError(Code.UNAVAILABLE, problem)

    def _leadership_changed(self, _leadership: Leadership) -> None:
        self._complete_up_to = 0
        self._problem = ""
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            waiting, self._waiting = self._waiting, []
            problem = "the pull was cut short"
            try:
                problem = await self._pull()
            finally:
                for done in waiting:
                    if not done.done():
                        done.set_result(problem)
            try:
                async with asyncio.timeout(PULL_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _pull(self) -> str:
        """Take over what is new; return why that failed, empty when it did not."""
        view = self._messaging.view
        if not view.leads:
            return str(view.not_leader())
        term = view.host.leadership.term
        problem = f"no member of the control group {self._control_group} is known here"
        for member in self._cluster.members(self._control_group):
            try:
                await self._users.follow(member, term)
                await self._follow_pages(member, term)
            except grpc.aio.AioRpcError as error:
                problem = f"{member}: {status.from_rpc_error(error, write=False)}"
            except (DledgerError, DecodeError, BadPage) as error:
                problem = f"{member}: {error}"
            else:
                problem = ""
                break
        if term == view.host.leadership.term:
            self._tell(problem)
        return problem

    def _tell(self, problem: str) -> None:
        if problem:
            left_out = self._quiet.admit("problem")
            if left_out is not None:
                self._log.warning(
                    "cannot follow the control group",
                    group=self._messaging.view.names.group,
                    reason=problem,
                    others_since=left_out,
                )
        self._problem = problem

    async def _follow_pages(self, member: Callee, term: int) -> None:
        """Take over all that one member of the control group tells; raise what went wrong.

        The control group forgets old deletions. A group that does not know all decisions up to
        the newest forgotten one reads the whole list, and deletes the topics it does not name.
        """
        view = self._messaging.view
        since = floor = self._complete_up_to
        queries = view.machine.queries
        newest = max(queries.newest_control_index, queries.forgotten_index)
        cursor = b""
        told: set[bytes] = set()
        while True:
            reply = await self._page(member, since, cursor)
            if term != view.host.leadership.term:
                raise view.not_leader()
            check_history(reply, queries.control_id, newest)
            if reply.forgotten_index > floor:
                since, floor, cursor = 0, reply.forgotten_index, b""
                told.clear()
                continue
            topics = [topic_from_proto(topic) for topic in reply.topics]
            told.update(topic.topic_id for topic in topics)
            await self._take_over(topics, reply.group_id)
            cursor = reply.cursor
            if not cursor:
                break
        if since < floor:
            await self._take_over(
                [
                    replace(topic, deleted=True, control_index=floor)
                    for topic in queries.topics()
                    if topic.control_index < floor and topic.topic_id not in told
                ],
                reply.group_id,
            )
        if term != view.host.leadership.term:
            raise view.not_leader()
        self._complete_up_to = max(self._complete_up_to, reply.control_index)

    async def _page(self, member: Callee, since: int, cursor: bytes) -> pb.ListTopicsReply:
        view = self._messaging.view
        request = pb.ListTopicsRequest(since_control_index=since, with_deleted=True, cursor=cursor)
        unary = raw.raw_unary(self._channels.to(member), LIST_METHOD)
        metadata = ((GROUP_KEY, self._control_group),)
        answer = await unary(request.SerializeToString(), timeout=PAGE_SECONDS, metadata=metadata)
        reply = pb.ListTopicsReply.FromString(answer)
        check_page(request, reply, view.names.cluster, self._control_group)
        return reply

    async def _take_over(self, topics: Sequence[Topic], control_id: bytes) -> None:
        for first in range(0, len(topics), TOPICS_PER_IMPORT):
            some = topics[first : first + TOPICS_PER_IMPORT]
            for error in await import_topics(self._messaging, some, control_id):
                # The other topics must not wait for this one. Each leader logs it once.
                self._log.warning("cannot take over a topic", reason=str(error))
