"""What all unary calls share: the group, admission, which member executes, how errors leave.

Owns the rule of D10 for unary writes. The leader executes a write. A member that does not lead
forwards the call once; the second member, if it does not lead either, answers NOT_LEADER. A call
that was not proposed yet waits for the end of an election, up to its deadline. A member repeats no
call. Not owned: which calls there are (`table`), what a call does (its handler).
"""

import enum
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar, cast

import grpc
import grpc.aio
import structlog
from google.protobuf.message import Message

from dledger.clock import Clock
from dledger.log.errors import DamagedFile
from dledger.state.values import Topic
from dledger.store.store import StoreFailed
from dledger_broker.cluster.channels import (
    FIRST_HOP,
    FORWARDED_KEY,
    GROUP_KEY,
    LAST_HOP,
    USER_KEY,
    Channels,
)
from dledger_broker.cluster.consumer_groups import ConsumerGroupAuthority
from dledger_broker.cluster.topic_authority import TopicAuthority
from dledger_broker.cluster.topic_follower import TopicFollower
from dledger_broker.delivery.coordinator import Coordinator
from dledger_broker.delivery.grants import Grants
from dledger_broker.group.group_view import ANSWER_BY, CALL_SECONDS_MAX
from dledger_broker.read.batches import DamagedBatch
from dledger_broker.rpc.admission import AdmissionControl, Work
from dledger_broker.security import rules
from dledger_broker.security.gate import EVERYBODY, Caller, Gate, open_gate
from dledger_broker.security.rules import Rule
from dledger_broker.snapshots.keeping import Snapshots
from dledger_broker.usecases.messaging import Messaging
from dledger_broker.users.authority import UserAuthority
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import DETAIL_SIZE_MAX
from dledger_proto.names import printable
from dledger_proto.network.tls import Callee
from dledger_proto.rpc import raw, status
from dledger_proto.rpc.stall import within_stall_limit

DEADLINE_DEFAULT_SECONDS: Final = 10.0
ANSWER_SHARE: Final = 0.9
"""The share of the caller's time in which a call is answered. A refusal that comes after the
caller's deadline is an unknown outcome for the caller."""
ELECTION_WAIT_SECONDS: Final = 0.1
"""How often a call that waits for a leader looks again, besides at every change of leadership."""

SHOWN: Final = ("name", "topic", "consumer_group", "target", "member")
"""Fields of requests that lines of the audit show."""
BUGS: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
    ValueError, struct.error,
)  # fmt: skip
"""What dledger's own code raises when it is wrong. The storage raises none of these."""
UNREADABLE: Final = (StoreFailed, DamagedBatch, DamagedFile)
"""What reading the state or the log raises. Not every OSError: a TimeoutError is one."""

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


class AnyContext(Protocol):
    """What calls use of a `grpc.aio.ServicerContext`, whatever its message types."""

    def invocation_metadata(self) -> object:
        """Return the call's metadata: pairs of a name and a value, or None."""
        ...

    def time_remaining(self) -> float | None:
        """Return the seconds left, None without a deadline."""
        ...

    def peer(self) -> str:
        """Return the other end of the connection."""
        ...


@dataclass(frozen=True, slots=True)
class HostedGroup:
    """One group of this process, as calls reach it."""

    messaging: Messaging
    flush_mode: str = ""
    authority: TopicAuthority | None = None
    """Decides about topics; None unless the group is the control group."""
    group_authority: ConsumerGroupAuthority | None = None
    """Decides about consumer groups; None unless the group is the control group."""
    user_authority: UserAuthority | None = None
    """Decides about users; None unless the group is the control group."""
    follower: TopicFollower | None = None
    """Takes over the decisions about users and topics; None when the group is the control group."""
    coordinator: Coordinator | None = None
    """Keeps the consumers of consumer groups; None in tests that need none."""
    grants: Grants | None = None
    """Asks coordinators what they granted; None in tests that need none."""
    snapshots: Snapshots | None = None
    """Keeps the snapshots of this member; None in tests that need none."""
    security: str = "off"
    """As `Status` says it."""


def group_named(groups: Mapping[str, HostedGroup], name: str) -> HostedGroup:
    """Return a group, with an empty name the only one; DledgerError when it is not here."""
    if not name and len(groups) == 1:
        return next(iter(groups.values()))
    found = groups.get(name)
    if found is not None:
        return found
    hosted = ", ".join(groups)
    if not name:
        raise invalid(f"metadata {GROUP_KEY} must name one of {hosted}")
    raise DledgerError(
        Code.WRONG_GROUP, f"this member does not serve group {name!r}, it serves {hosted}"
    )


def metadata_of(context: AnyContext) -> dict[str, str]:
    """Return a call's metadata by name."""
    pairs = cast("Iterable[tuple[str, str | bytes]]", context.invocation_metadata() or ())
    return {
        key: value if isinstance(value, str) else value.decode(errors="replace")
        for key, value in pairs
    }


async def send_all(replies: AsyncGenerator[Message], context: raw.RawContext, again: str) -> None:
    """Send the messages of a stream; BUSY, saying `again`, when one is not taken in time."""
    write = within_stall_limit(context.write, again)
    async with aclosing(replies):
        async for reply in replies:
            await write(reply.SerializeToString())


class Call:
    """One call: its metadata, its deadline, and the groups of the process."""

    def __init__(
        self, context: AnyContext, clock: Clock, groups: Mapping[str, HostedGroup], gate: Gate
    ) -> None:
        self.metadata: Mapping[str, str] = metadata_of(context)
        self._context = context
        self.groups = groups
        self.gate = gate
        self.caller: Caller = EVERYBODY
        """Who makes the call, as far as the gate has seen."""
        self.group_name = self.metadata.get(GROUP_KEY, "")
        """Of the group that the call is for; empty: the only one of the process."""
        remaining = context.time_remaining()
        if remaining is None:
            remaining = DEADLINE_DEFAULT_SECONDS
        self._clock = clock
        self.deadline = clock.monotonic() + ANSWER_SHARE * min(remaining, CALL_SECONDS_MAX)

    @property
    def group(self) -> HostedGroup:
        """The group that the call is for; DledgerError when it is not here."""
        return group_named(self.groups, self.group_name)

    @property
    def peer(self) -> str:
        """The other end of the connection, as gRPC names it."""
        return self._context.peer()

    async def confirm(self, seconds: float) -> None:
        """Catch up with the group that the call is for; DledgerError."""
        await self.messaging.view.confirm(seconds)

    def find_topic(self, topic_id: bytes) -> Topic | None:
        """Return the topic of an id, as it is applied here."""
        return self.messaging.view.machine.queries.topic_by_id(topic_id)

    @property
    def messaging(self) -> Messaging:
        """The use cases of `group`."""
        return self.group.messaging

    @property
    def coordinator(self) -> Coordinator:
        """The consumers of the consumer groups that `group` coordinates."""
        coordinator = self.group.coordinator
        assert coordinator is not None, f"group {self.group_name} coordinates nothing"
        return coordinator

    @property
    def is_forwarded(self) -> bool:
        """True when another member passes this call on."""
        return FORWARDED_KEY in self.metadata

    @property
    def ends_here(self) -> bool:
        """True when this member must not pass the call on."""
        return self.metadata.get(FORWARDED_KEY) not in (None, FIRST_HOP)

    @property
    def user(self) -> str:
        """The user that makes the call, also when a member passes it on; empty: nobody asks."""
        is_of_member = self.is_forwarded and self.gate.access.proves
        return self.caller.name or (self.metadata.get(USER_KEY, "") if is_of_member else "")

    def seconds_left(self) -> float:
        """Return the seconds until it must be answered, never negative."""
        return max(0.0, self.deadline - self._clock.monotonic())


class AnsweredBy(enum.Enum):
    """Which member may execute a call. Another member that receives the call forwards it once."""

    ANY_MEMBER = "any member"
    LEADER = "the leader of the group that the call names"
    CONTROL_LEADER = "the leader of the control group"


Check = Callable[[Call, Any], None]
"""Looks at a request before it is executed or forwarded; raises DledgerError to refuse it."""


def counted(field: str, least: int, most: int) -> Check:
    """Return the check that bounds a call's work: how many items a repeated field may hold."""

    def check(_call: Call, request: object) -> None:
        count = len(getattr(request, field))
        if not least <= count <= most:
            raise invalid(f"{count} {field} in one call, must be {least} to {most}")

    return check


@dataclass(frozen=True, slots=True)
class Row(Generic[Request, Reply]):
    """One unary call of a member."""

    service: str
    name: str
    request: type[Request]
    reply: type[Reply]
    work: Work | None
    """Whose bound the call counts against; None: the call is cheap and is not counted."""
    answered_by: AnsweredBy
    handler: Callable[[Call, Request], Awaitable[Reply]]
    rule: Rule
    """What a caller needs."""
    check: Check = lambda _call, _request: None
    """Bounds the work of one call."""
    while_draining: bool = False
    """True: answered also while the process ends."""
    asks_caller: bool = False
    """True: the handler asks what the caller may. So the call of a user is forwarded to no leader:
    that would take it for one of the member, which may everything."""

    @property
    def path(self) -> str:
        """The method as gRPC names it."""
        return f"/dledger.v1.{self.service}/{self.name}"


def _shown(request: Message) -> str:
    """Return what a request names, for one line: no settings, nothing secret."""
    user: Message | None = getattr(request, "user", None)
    names = (
        getattr(each, field.name)
        for each in (request, *([user] if isinstance(user, Message) else []))
        for field in each.DESCRIPTOR.fields
        if field.name in SHOWN and field.type == field.TYPE_STRING
    )
    return printable(" ".join(filter(None, names)))[:DETAIL_SIZE_MAX]


class Calls:
    """Runs the calls of one process."""

    def __init__(
        self,
        groups: Mapping[str, HostedGroup],
        admission: AdmissionControl,
        channels: Channels,
        clock: Clock,
        *,
        gate: Gate | None = None,
        control_group: str = "",
        control_members: Callable[[], list[Callee]] = list,
    ) -> None:
        self.groups = groups
        self.admission = admission
        self.clock = clock
        self.gate = gate or open_gate(clock)
        self._channels = channels
        self._control_group = control_group
        self._control_members = control_members
        self._log = structlog.get_logger()

    def method(self, row: Row[Any, Any]) -> raw.UnaryMethod:
        """Return what a gRPC server registers for a row."""
        return raw.UnaryMethod(partial(self.answer, row))

    async def answer(self, row: Row[Any, Any], data: bytes, context: raw.RawContext) -> bytes:
        """Run one unary call under its bound; errors leave as statuses (S140)."""
        began = self.clock.monotonic()
        try:
            if not row.while_draining:
                self.admission.check_open()
            with self.admission.counted(row.work):
                call = Call(context, self.clock, self.groups, self.gate)
                of_members = row.rule is rules.MEMBERS or call.is_forwarded
                # Else a client could make itself an administrator before users are turned on.
                if of_members or (row.rule is rules.ADMINISTRATORS and not self.gate.is_on):
                    self.gate.check_member(context, row.name)
                ANSWER_BY.set(call.deadline)  # of this call's own context
                if row.rule is not rules.BEFORE_LOGIN:
                    call.caller = self.gate.caller(context, call.metadata, row.name)
                with self.admission.share(row.work, call.user):
                    request = status.parsed(row.request, data)
                    await self._admit(row, call, request)
                    reply: Message = await self._execute_noting(row, call, request)
                if row.rule.is_noted and self.gate.is_on:
                    by = call.caller.name or "a member"
                    self.gate.audit.done(row.name, call.peer, by, request=_shown(request))
                return reply.SerializeToString()
        except DledgerError as error:
            self.admission.meters.refused[error.code] += 1
            await status.abort(context, error)
        except BUGS as error:
            await self.fail(context, error)
        finally:
            self.admission.meters.called(row.name, self.clock.monotonic() - began)

    async def _admit(self, row: Row[Any, Any], call: Call, request: Message) -> None:
        """Raise unless the caller may make this call."""
        if row.rule is rules.ADMINISTRATORS:
            await self.gate.admit_admin(call.caller, row.name)
        # The control group may not be here: what its calls need are names, and no topics' ids.
        is_of_control = row.answered_by is AnsweredBy.CONTROL_LEADER
        await self.gate.admit(
            call.caller,
            lambda: row.rule.needs(request, call.find_topic),
            *(() if is_of_control else (call.confirm,)),
        )

    async def fail(self, context: status.AbortableContext, bug: Exception) -> NoReturn:
        """End a call that met a bug; whether it took effect is unknown."""
        self._log.error("call failed because of a bug in dledger", exc_info=bug)
        sentence = f"{type(bug).__name__}: {bug}"
        await status.abort(context, DledgerError(Code.INTERNAL, sentence))

    def unreadable(self, group_name: str, error: Exception, code: Code) -> DledgerError:
        """End the member: what it saved cannot be read (I16). Return what its caller is told."""
        group_named(self.groups, group_name).messaging.view.host.failed(error)
        return DledgerError(code, str(error))

    async def _execute_noting(
        self, row: Row[Request, Reply], call: Call, request: Request
    ) -> Reply:
        """Execute; the audit has a line when the state, here or at the leader, refuses the user."""
        try:
            return await self._execute(row, call, request)
        except DledgerError as error:
            if error.code is Code.NO_PERMISSION:
                call.caller.was_refused(error, row.name)
            raise

    async def _execute(self, row: Row[Request, Reply], call: Call, request: Request) -> Reply:
        if row.answered_by is AnsweredBy.CONTROL_LEADER:
            if self._control_group not in self.groups:
                return await self._forward_to_control_group(row, call, request)
            call.group_name = self._control_group
        row.check(call, request)
        if row.answered_by is AnsweredBy.ANY_MEMBER:
            try:
                return await row.handler(call, request)
            except UNREADABLE as error:
                raise self.unreadable(call.group_name, error, Code.STORAGE_FAILED) from error
        return await self._on_leader(row, call, request)

    async def _on_leader(self, row: Row[Request, Reply], call: Call, request: Request) -> Reply:
        """Execute a write where the group is led: here, or forwarded once."""
        view = call.messaging.view
        while True:
            if view.leads:
                try:
                    return await row.handler(call, request)
                except UNREADABLE as error:
                    raise self.unreadable(call.group_name, error, Code.UNKNOWN_OUTCOME) from error
                except DledgerError as error:
                    if error.code not in (Code.NOT_LEADER, Code.NO_LEADER):
                        raise
            if call.ends_here or (row.asks_caller and call.caller is not EVERYBODY):
                raise view.not_leader()
            leader = view.leader_callee()
            if leader is not None and view.leader != view.names.member:
                metadata = (
                    (GROUP_KEY, view.names.group),
                    (FORWARDED_KEY, LAST_HOP),
                    (USER_KEY, call.user),
                )
                return await self._forward(row, call, leader, metadata, request)
            left = call.seconds_left()
            if left <= 0:
                raise view.no_leader()
            await view.leadership_change(min(left, ELECTION_WAIT_SECONDS))

    async def _forward_to_control_group(
        self, row: Row[Request, Reply], call: Call, request: Request
    ) -> Reply:
        """Pass a call on to a member of the control group, which may forward it to its leader."""
        group = self._control_group
        if call.is_forwarded:
            raise DledgerError(
                Code.WRONG_GROUP, f"this member does not serve the control group {group}"
            )
        metadata = ((GROUP_KEY, group), (FORWARDED_KEY, FIRST_HOP), (USER_KEY, call.user))
        for member in self._control_members()[:1]:
            return await self._forward(row, call, member, metadata, request)
        raise DledgerError(
            Code.UNAVAILABLE, f"this member knows no member of the control group {group}"
        )

    async def _forward(
        self,
        row: Row[Request, Reply],
        call: Call,
        member: Callee,
        metadata: raw.Metadata,
        request: Request,
    ) -> Reply:
        """Make the same call at another member, once; the other member's error is the answer."""
        unary = raw.raw_unary(self._channels.to(member), row.path)
        try:
            answer = await unary(
                request.SerializeToString(),
                timeout=max(call.seconds_left(), 0.001),  # zero would mean no deadline
                metadata=metadata,
            )
        except grpc.aio.AioRpcError as error:
            raise status.from_rpc_error(error, write=True) from None
        return status.answer_of(row.reply, answer, write=True)
