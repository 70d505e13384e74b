"""A member's place at the name servers: one registration stream per group and name server (S4-S9).

Owns what a member tells and when: everything first, cut into messages of a megabyte; then a
heartbeat in each interval, and changes of leader or topics at once. Name servers do not know each
other. So each has a stream of its own, and a member waits for none of them.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from dledger.raft.driver.tasks import end_task
from dledger.raft.links.line_budget import LineBudget
from dledger_broker.cluster.channels import Channels, connected
from dledger_broker.group.group_view import GroupView
from dledger_broker.process.tasks import start_running
from dledger_broker.rpc.topic_proto import topic_to_proto
from dledger_namesrv.chunks import chunks_of
from dledger_proto.limits import RECONNECT_BACKOFF_MAX_MS
from dledger_proto.network.tls import Callee, name_server_name
from dledger_proto.rpc import raw
from dledger_proto.rpc.status import from_rpc_error
from dledger_proto.v1.routes_pb2 import Registration, RegistrationAnswer

REGISTER_METHOD: Final = "/dledger.v1.Registry/Register"


class Registrar:
    """The stream of one group to one name server."""

    def __init__(
        self,
        name_server: str,
        view: GroupView,
        channels: Channels,
        *,
        heartbeat_seconds: float,
    ) -> None:
        self._name_server = name_server
        self._callee = Callee(name_server, name_server_name(view.names.cluster))
        self._view = view
        self._channels = channels
        self._heartbeat = heartbeat_seconds
        self._changed = asyncio.Event()
        self._told_version = -1
        self._sequence = 0
        self._send_full = True
        self._lines = LineBudget()
        """What may still be logged on why the member is not registered."""
        self._task: asyncio.Task[None] | None = None
        self._log = structlog.get_logger().bind(
            group=view.names.group, member=view.names.member, name_server=name_server
        )

        view.host.watch_leadership(lambda _leadership: self.changed())

    def start(self) -> None:
        """Begin to register."""
        name = f"register {self._view.names.group} at {self._name_server}"
        self._task = start_running(self._run, name)

    async def stop(self) -> None:
        """Close the stream: the name server drops this member at once."""
        await end_task(self._task)

    def changed(self) -> None:
        """Tell now: leader or topics changed."""
        self._changed.set()

    async def _run(self) -> None:
        while True:
            channel = self._channels.to(self._callee)
            call = raw.raw_stream(channel, REGISTER_METHOD)()
            reader = asyncio.get_running_loop().create_task(self._read(call))
            try:
                self._sequence = 0
                self._send_full = True
                await self._tell(call, reader)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
                # The stream has ended; its reader logs why.
                await asyncio.wait({reader}, timeout=self._heartbeat)
            finally:
                reader.cancel()
                call.cancel()
            await asyncio.sleep(RECONNECT_BACKOFF_MAX_MS / 1000)
            await connected(channel)

    async def _tell(self, call: raw.RawStreamCall, reader: "asyncio.Task[None]") -> None:
        """Send until the stream ends."""
        while not reader.done():
            self._changed.clear()
            for message in self._next():
                await call.write(message.SerializeToString())
            try:
                async with asyncio.timeout(self._heartbeat):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _read(self, call: raw.RawStreamCall) -> None:
        try:
            async for answer in call:
                self._lines = LineBudget()
                if RegistrationAnswer.FromString(answer).send_full and not self._send_full:
                    self._send_full = True
                    self._changed.set()
        except grpc.aio.AioRpcError as error:
            refusal = from_rpc_error(error, write=False)
            self._not_registered(refusal.detail or refusal.code.name)
        except DecodeError as error:
            self._not_registered(f"the answer is garbled: {error}")
        finally:
            self._changed.set()

    def _not_registered(self, reason: str) -> None:
        """Log each reason once until the member is registered: not at every try."""
        if self._lines.may_say(reason, asyncio.get_running_loop().time()):
            self._log.warning("cannot register at a name server", reason=reason)

    def _next(self) -> Iterator[Registration]:
        """Return the messages to send now: at least a heartbeat."""
        full = self._send_full
        self._send_full = False
        watch = self._view.topic_watch
        if full:
            topics = self._view.machine.queries.topics(with_deleted=True)
        else:
            topics = watch.changed_since(self._told_version)
        self._told_version = watch.version
        message = self._heartbeat_message()
        message.full = full
        message.topics.extend(topic_to_proto(topic) for topic in topics)
        for part in chunks_of(message):
            self._sequence = part.sequence
            yield part

    def _heartbeat_message(self) -> Registration:
        names = self._view.names
        leadership = self._view.host.leadership
        return Registration(
            cluster=names.cluster,
            group=names.group,
            member=names.member,
            address=names.clients[names.member],
            peer_address=names.addresses[names.member],
            sequence=self._sequence + 1,
            term=leadership.term,
            leader=leadership.leader or "",
            applied_index=self._view.machine.applied_index,
            control_group=names.is_control,
            configured_members=list(names.addresses),
        )
