"""The streams of a member: append, fetch, sessions of consumers, and the entries of the log.

Owns the streams' place in admission, and how their errors leave. Not owned: what a stream does
(`append.stream`, `read.fetch`, `delivery.session_stream`, `read.log_entries`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NoReturn, cast

import structlog

from dledger_broker.append.intake import AppendIntake
from dledger_broker.append.router import AppendRouter
from dledger_broker.append.stream import AppendSession, Receive, Send
from dledger_broker.append.unary import append_unary
from dledger_broker.cluster.channels import FORWARDED_KEY, GROUP_KEY
from dledger_broker.group.group_view import GroupView
from dledger_broker.process.logs import Quiet
from dledger_broker.read.assignments import FetchOptions, assignments_of
from dledger_broker.read.fetch import FetchSession
from dledger_broker.read.log_entries import log_entries
from dledger_broker.rpc.calls import BUGS, UNREADABLE, Calls, group_named, metadata_of, send_all
from dledger_broker.security import rules
from dledger_broker.security.gate import EVERYBODY, Caller, Gate, Need
from dledger_broker.usecases.messaging import Messaging
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc import raw, status
from dledger_proto.rpc.stall import within_stall_limit
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2


class Streams:
    """The raw methods of a member."""

    def __init__(self, calls: Calls, routers: Mapping[str, AppendRouter]) -> None:
        self._calls = calls
        self._routers = routers
        self._intakes: dict[tuple[str, bool], AppendIntake] = {}
        """By the group that the call names (empty: the only one), and whether a member forwards."""
        self._log = structlog.get_logger()
        self._quiet = Quiet(calls.clock)

    def _messaging(self, metadata: Mapping[str, str]) -> Messaging:
        return group_named(self._calls.groups, metadata.get(GROUP_KEY, "")).messaging

    def _caller(self, context: raw.RawContext, call: str) -> Caller:
        return self._calls.gate.caller(context, metadata_of(context), call)

    def _intake(self, context: raw.RawContext) -> AppendIntake:
        metadata = metadata_of(context)
        named = metadata.get(GROUP_KEY, ""), FORWARDED_KEY in metadata
        if named[1]:
            self._calls.gate.check_member(context, "Append")
        intake = self._intakes.get(named)
        if intake is None:
            messaging = self._messaging(metadata)
            intake = self._intakes[named] = AppendIntake(
                self._routers[messaging.view.names.group], messaging.write_rule,
                self._calls.admission, self._calls.clock, forwarded=named[1],
            )  # fmt: skip
        return intake

    async def _end_member(self, context: raw.RawContext, error: Exception, code: Code) -> NoReturn:
        """End the member whose state or log cannot be read, and the call."""
        named = metadata_of(context).get(GROUP_KEY, "")
        await status.abort(context, self._calls.unreadable(named, error, code))

    async def append(self, _requests: object, context: raw.RawContext) -> None:
        """Serve a stream of batches."""
        try:
            self._calls.admission.check_open()
            caller = self._caller(context, "Append")
            session = AppendSession(self._intake(context), self._calls.admission, caller)
            with self._calls.admission.append_streams.held(caller.name):
                # Tells the caller that the stream is taken: what it writes now has arrived.
                await context.send_initial_metadata(())
                receive = cast("Callable[[], Awaitable[object]]", context.read)
                remedy = "the outcome of unanswered batches is unknown"
                await session.run(receive, within_stall_limit(context.write, remedy))
        except DledgerError as error:
            left_out = self._quiet.admit(error.code)
            if left_out is not None:
                self._log.info(
                    "append stream ended",
                    reason=str(error),
                    address=context.peer(),
                    others_since=left_out,
                )
            await status.abort(context, error)
        except UNREADABLE as error:
            await self._end_member(context, error, Code.UNKNOWN_OUTCOME)
        except BUGS as error:
            await self._calls.fail(context, error)

    async def append_one(self, frame: bytes, context: raw.RawContext) -> bytes:
        """Answer one frame of batches."""
        try:
            self._calls.admission.check_open()
            caller = self._caller(context, "AppendOne")
            return await append_unary(self._intake(context), frame, caller)
        except DledgerError as error:
            await status.abort(context, error)
        except UNREADABLE as error:
            await self._end_member(context, error, Code.UNKNOWN_OUTCOME)
        except BUGS as error:
            await self._calls.fail(context, error)

    async def fetch(self, request_bytes: bytes, context: raw.RawContext) -> None:
        """Send committed batches."""
        calls = self._calls
        try:
            calls.admission.check_open()
            caller = self._caller(context, "Fetch")
            messaging = self._messaging(metadata_of(context))
            request = status.parsed(pb.FetchRequest, request_bytes)
            topic_by_id = messaging.view.machine.queries.topic_by_id

            def find_needs() -> Sequence[Need]:
                return tuple(rules.FETCHED.needs(request, topic_by_id))

            await calls.gate.admit(caller, find_needs, messaging.view.confirm)
            needs = find_needs()
            with calls.admission.fetch_streams.held(caller.name):
                assignments = await assignments_of(messaging, request)
                session = FetchSession(messaging.view, calls.admission)
                options = FetchOptions.of(
                    request.max_bytes,
                    request.wait_ms,
                    once=request.once,
                    with_positions=request.with_positions,
                    with_origins=request.with_origins,
                )
                send = _while(calls.gate, caller, needs, messaging.view, context.write)
                await session.run(assignments, options, send)
        except DledgerError as error:
            await status.abort(context, error)
        except UNREADABLE as error:
            await self._end_member(context, error, Code.STORAGE_FAILED)
        except BUGS as error:
            await calls.fail(context, error)

    async def session(self, _requests: object, context: raw.RawContext) -> None:
        """Keep the session of one consumer."""
        calls = self._calls
        try:
            calls.admission.check_open()
            caller = self._caller(context, "Session")
            hosted = group_named(calls.groups, metadata_of(context).get(GROUP_KEY, ""))
            assert hosted.coordinator is not None, "every group of a member has a coordinator"
            with calls.admission.sessions.held(caller.name):
                await context.send_initial_metadata(())
                receive = _joining(calls.gate, caller, hosted.messaging.view, context)
                send = within_stall_limit(context.write, "join again")
                await hosted.coordinator.session().run(receive, send)
        except DledgerError as error:
            await status.abort(context, error)
        except UNREADABLE as error:
            await self._end_member(context, error, Code.UNKNOWN_OUTCOME)
        except BUGS as error:
            await calls.fail(context, error)

    async def log_entries(self, request_bytes: bytes, context: raw.RawContext) -> None:
        """Send what the log holds of every entry. The time of each message is limited."""
        try:
            caller = self._caller(context, "LogEntries")
            await self._calls.gate.admit(
                caller, lambda: rules.OF_LOG.needs(None, lambda _topic_id: None)
            )
            request = status.parsed(pb.LogEntriesRequest, request_bytes)
            with self._calls.admission.log_streams.held(caller.name):
                view = self._messaging(metadata_of(context)).view
                replies = log_entries(view, request.from_index)
                await send_all(replies, context, "ask again from the last index")
        except DledgerError as error:
            await status.abort(context, error)


def _while(gate: Gate, caller: Caller, needs: Sequence[Need], view: GroupView, send: Send) -> Send:
    """Return `send` as long as the caller has what the stream needs: rights change meanwhile."""
    if caller is EVERYBODY:
        return send

    async def checked(frame: bytes) -> None:
        await gate.admit(caller, lambda: needs, view.confirm)
        await send(frame)

    return checked


def _joining(gate: Gate, caller: Caller, view: GroupView, context: raw.RawContext) -> Receive:
    """Return what reads a session: each Join needs what it names, from then on at each message."""
    receive = cast("Receive", context.read)
    if caller is EVERYBODY:
        return receive
    needs: Sequence[Need] = ()
    find = view.machine.queries.topic_by_id

    async def checked() -> object:
        nonlocal needs
        message = await receive()
        if isinstance(message, bytes):
            request = status.parsed(delivery_pb2.SessionRequest, message)
            if request.WhichOneof("what") == "join":
                find_needs = partial(rules.JOINED.needs, request.join, find)
                await gate.admit(caller, find_needs, view.confirm)
                needs = tuple(find_needs())  # after it: the member may know more topics by now
            await gate.admit(caller, lambda: needs, view.confirm)
        return message

    return checked
