"""One consumer's session, claims, commits and failures on the wire, around `GroupCore`.

Owns: the consumer group's creation, the session stream, calls to home groups, waits for commits.
Decides nothing about queues. All methods run on the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

import grpc.aio

from dledger_client import _machine
from dledger_client._core.consumer.state import Place
from dledger_client._core.group import actions as group_actions
from dledger_client._core.group.actions import Why
from dledger_client._core.group.core import GroupCore
from dledger_client._core.group.failures import Failure
from dledger_client._core.group.progress import Progress
from dledger_client._core.group.queues import HeldQueue
from dledger_client._core.ids import ID_SIZE
from dledger_client._core.message_checks import check_group, check_topic
from dledger_client._core.routes import RefreshRoutes
from dledger_client._shell import calls
from dledger_client._shell.cluster import Cluster
from dledger_client._shell.driver import Driver
from dledger_client._shell.group.objects import ConsumerGroups
from dledger_client._shell.queries import Queries
from dledger_client._shell.wire import failure
from dledger_client.config import ConsumerConfig, StartAt
from dledger_client.errors import ClientError, error_of, invalid
from dledger_client.model import ConsumerGroupSettings, StartFrom
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.raw import RawStreamCall, raw_stream, read_frame
from dledger_proto.rpc.status import answer_of
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2

PATTERN_LENGTH_MAX: Final = 255
LEAVE_SECONDS: Final = 1.0
"""How long a consumer that leaves waits for the coordinator to end its session."""
_LOG = logging.getLogger("dledger_client")


class QueueUser(Protocol):
    """What becomes of the records of queues."""

    def start_queue(self, held: HeldQueue) -> None:
        """Read a queue from its floor on."""
        ...

    def stop_queue(self, held: HeldQueue, why: Why) -> None:
        """Hand out nothing more of a queue; once nothing of it is in hand, let it go."""
        ...

    def failure_stored(self, told: group_actions.Failed) -> None:
        """Take in what becomes of a record that failed."""
        ...

    def group_ended(self, error: ClientError) -> None:
        """Take in that the consumer is in its group no more."""
        ...


def subscriptions_of(what: str | Iterable[str], patterns: str | Iterable[str]) -> list[
    delivery_pb2.Subscription
]:  # fmt: skip
    """Return topics and patterns as the session names them; InvalidRequest."""
    topics = [what] if isinstance(what, str) else list(what)
    regular = [patterns] if isinstance(patterns, str) else list(patterns)
    for topic in topics:
        check_topic(topic)
    for pattern in regular:
        if not 1 <= len(pattern) <= PATTERN_LENGTH_MAX:
            raise invalid(f"pattern: {len(pattern)} characters, must be 1 to {PATTERN_LENGTH_MAX}")
    found = [delivery_pb2.Subscription(topic=topic) for topic in dict.fromkeys(topics)]
    found += [
        delivery_pb2.Subscription(topic=pattern, pattern=True) for pattern in dict.fromkeys(regular)
    ]
    if not found:
        raise invalid("subscribe: neither a topic nor a pattern is given")
    return found


class Membership:
    """What a consumer says to its group, and what it hears."""

    def __init__(
        self,
        cluster: Cluster,
        queries: Queries,
        config: ConsumerConfig,
        subscriptions: Sequence[delivery_pb2.Subscription],
        user: QueueUser,
    ) -> None:
        check_group(config.group)
        self._cluster = cluster
        self._queries = queries
        self._config = config
        self._user = user
        self._join = delivery_pb2.Join(
            consumer_group=config.group,
            member_id=_machine.random_bytes(ID_SIZE).hex(),
            instance=config.instance,
            client=_machine.process_name(),
            subscriptions=subscriptions,
            order=pb.ConsumeOrder.ValueType(config.order),
            strategy=config.strategy,
            room=config.room,
        )
        self.core = GroupCore(
            self._join,
            cluster.routes,
            cluster.members,
            cluster.generator,
            commit_interval=config.commit_interval_ms / 1_000,
        )
        self.driver = Driver("consumer", cluster, self.core, self._carry_out, self._settle)
        self.group = delivery_pb2.ConsumerGroup()
        """As the coordinator described it."""
        self._outboxes: dict[int, asyncio.Queue[delivery_pb2.SessionRequest]] = {}
        self._waits: dict[int, asyncio.Future[None]] = {}
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Create the group if need be, and begin to join it."""
        found = await self._find_group()
        self.group.CopyFrom(found)
        self.driver.start()
        self.core.begin(found.coordinator, self.driver.now())
        self.driver.advance()

    async def _find_group(self) -> delivery_pb2.ConsumerGroup:
        """Return the consumer group; create it if need be."""
        config, settings = self._config, ConsumerGroupSettings()
        if config.order:
            settings["order"] = config.order
        if config.start_at is StartAt.FIRST:
            settings["start"] = StartFrom.FIRST
        return await ConsumerGroups(self._cluster, self._queries).create(
            config.group,
            settings,
            automatic=True,
            only_find=not config.create_group,
            subscriptions=self._join.subscriptions,
        )

    # Actions.

    def _carry_out(self, action: group_actions.Action) -> None:
        match action:
            case group_actions.OpenSession(stream, group, address):
                self._outboxes[stream] = asyncio.Queue()
                self.driver.open_stream(
                    stream, self._session(action), f"dledger session {group}@{address}"
                )
            case group_actions.TellSession(stream, request):
                outbox = self._outboxes.get(stream)
                if outbox is not None:
                    outbox.put_nowait(request)
            case group_actions.CloseSession(stream):
                self.driver.close_stream(stream)
            case group_actions.Ask():
                self.driver.spawn(self._ask(action))
            case group_actions.StartQueue(held, offset):
                self._start(held, offset)
            case group_actions.StopQueue(held, why):
                _LOG.debug("consumer group %s: %s: %s", self._config.group, why.value, held.name)
                self._user.stop_queue(held, why)
            case group_actions.CommitDone(ticket, error):
                self._committed(ticket, error)
            case _:
                self._tell_user(action)

    def _tell_user(self, action: group_actions.Action) -> None:
        match action:
            case group_actions.Failed():
                self._user.failure_stored(action)
            case group_actions.FailureRests(held, offset, error, seconds):
                _LOG.warning(
                    "%s@%d: its failure is not taken, told again in %.2f s: %s",
                    held.name, offset, seconds, error,
                )  # fmt: skip
            case group_actions.Joined(group):
                self.group.CopyFrom(group)
            case group_actions.Ended(error):
                self._user.group_ended(error)
            case RefreshRoutes():
                self._cluster.refresh()
            case _:
                raise AssertionError(f"{type(action).__name__} is no action of this driver")

    def _settle(self) -> None:
        self._changed.set()

    # The session.

    async def _session(self, action: group_actions.OpenSession) -> None:
        outbox = self._outboxes[action.stream]
        writer: asyncio.Task[None] | None = None
        try:
            channel, metadata = await self._cluster.channels.ready(action.address, action.group)
            call = raw_stream(channel, calls.SESSION)(metadata=metadata)
            try:
                await call.write(action.join.SerializeToString())
                writer = self.driver.loop.create_task(_write(call, outbox))
                await self._read(action.stream, call)
            except grpc.aio.AioRpcError as broken:
                fail = self._cluster.channels.failure
                raise fail(channel, broken, metadata, write=False) from None
            finally:
                if writer is not None:
                    writer.cancel()
                    await asyncio.gather(writer, return_exceptions=True)
                call.cancel()
            error = error_of(Code.UNAVAILABLE, f"{action.address}: the session's stream ended")
        except TimeoutError:
            error = error_of(Code.UNAVAILABLE, f"{action.address}: no connection")
        except (grpc.aio.AioRpcError, DledgerError) as broken:
            error = failure(broken, write=False)
        except asyncio.InvalidStateError as broken:
            error = error_of(Code.UNAVAILABLE, f"{action.address}: {broken}")
        finally:
            del self._outboxes[action.stream]
        _LOG.debug("session %s@%s: %s", action.group, action.address, error)
        if error.hint and error.code is Code.NOT_LEADER:
            self._cluster.refresh()
        self.core.session_down(action.stream, error, self.driver.now())
        self.driver.advance()

    async def _read(self, stream: int, call: RawStreamCall) -> None:
        while (message := await read_frame(call)) is not None:
            reply = answer_of(delivery_pb2.SessionReply, message, write=False)
            self.core.session_reply(stream, reply, self.driver.now())
            self.driver.advance()

    # Calls.

    async def _ask(self, action: group_actions.Ask) -> None:
        try:
            reply = await self._call(action)
        except ClientError as error:
            _LOG.debug("group %s: %s", action.group, error)
            self.core.unanswered(action.call, self.driver.now())
        else:
            self.core.answered(action.call, reply, self.driver.now())
        self.driver.advance()

    async def _call(self, action: group_actions.Ask) -> group_actions.Reply:
        call, group = self._cluster.call, action.group
        match action.request:
            case delivery_pb2.ClaimQueuesRequest() as request:
                return await call(calls.CLAIM_QUEUES, request, group=group)
            case delivery_pb2.ReleaseQueuesRequest() as request:
                return await call(calls.RELEASE_QUEUES, request, group=group)
            case delivery_pb2.FailRecordsRequest() as request:
                return await call(calls.FAIL_RECORDS, request, group=group)
            case request:
                return await call(calls.COMMIT_OFFSETS, request, group=group)

    # Where a queue begins.

    def _start(self, held: HeldQueue, offset: int) -> None:
        if offset >= 0:
            self._user.start_queue(held)
        else:
            self.driver.spawn(self._find_start(held))

    async def _find_start(self, held: HeldQueue) -> None:
        """Find where a queue begins whose home group knows no floor of it (S103, S104)."""
        while held.is_held:
            try:
                offset = await self._first_offset(held)
            except ClientError as error:
                _LOG.debug("start of %s: %s", held.name, error)
                self._cluster.refresh()
                await asyncio.sleep(0.1)
                continue
            if held.is_held:
                held.progress = Progress(offset)
                self._user.start_queue(held)
            return

    async def _first_offset(self, held: HeldQueue) -> int:
        settings = self.group.settings
        if settings.start == pb.START_FROM_TIME:
            wanted = pb.OffsetByTimeRequest(queue=held.ref(), time_ms=settings.start_time_ms)
            found = await self._cluster.call(calls.OFFSET_BY_TIME, wanted, group=held.group)
            return found.offset
        request = pb.QueueOffsetsRequest(queues=[held.ref()], linearizable=True)
        reply = await self._cluster.call(calls.QUEUE_OFFSETS, request, group=held.group)
        is_first = settings.start == pb.START_FROM_FIRST
        return reply.rows[0].minimum if is_first else reply.rows[0].maximum

    # Commits.

    async def commit(self, queues: Iterable[HeldQueue]) -> None:
        """Commit what is done of queues, and wait for it; ClientError."""
        ticket = self.core.commit(queues, self.driver.now())
        done = self._waits[ticket] = self.driver.loop.create_future()
        self.driver.advance()
        budget = self._config.connection.call_timeout_ms / 1_000
        try:
            async with asyncio.timeout(budget):
                await done
        except TimeoutError:
            raise error_of(
                Code.UNKNOWN_OUTCOME,
                f"commit: not all home groups have answered within {budget:.1f} s",
                repeatable=True,
            ) from None
        finally:
            self._waits.pop(ticket, None)

    def _committed(self, ticket: int, error: ClientError | None) -> None:
        waiting = self._waits.get(ticket)
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)

    # Inputs of the user of queues.

    def let_go(self, held: HeldQueue) -> None:
        """Say that nothing of a revoked queue is in hand any more."""
        self.core.let_go(held, self.driver.now())
        self.driver.advance()

    def fail(self, failure: Failure) -> None:
        """Tell that a record failed."""
        self.core.fail(failure, self.driver.now())
        self.driver.advance()

    async def leave(self, seconds: float) -> None:
        """Give everything back, for at most so long, and leave the group."""
        if self.driver.is_started:
            self.core.close(self.driver.now())
            self.driver.advance()
            if not await self._until(lambda: self.core.is_empty, seconds):
                _LOG.warning(
                    "consumer group %s: left while %d queues were not given back",
                    self._config.group, len(self.core.queues()),
                )  # fmt: skip
            self.core.leave()
            self.driver.carry_out()
            await self._until(lambda: not self._outboxes, LEAVE_SECONDS)
        await self.driver.cancel()

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition, for at most so long; return whether it holds."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def committed(self) -> Mapping[Place, int]:
        """Return the floor of each queue that is read."""
        return self.core.committed()


async def _write(call: RawStreamCall, outbox: "asyncio.Queue[delivery_pb2.SessionRequest]") -> None:
    while True:
        request = await outbox.get()
        await call.write(request.SerializeToString())
