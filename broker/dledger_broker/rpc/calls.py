"""What every unary call has in common: which group, admission, who executes it, how errors leave.

Owns the rule of D10 for unary writes: the leader executes, another member forwards once, a second
one that does not lead answers NOT_LEADER; a call that was not proposed yet waits out an election,
up to its deadline; nothing is repeated here. Not owned: what a call does.
"""

import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Generic, NoReturn, Protocol, TypeVar, cast

import grpc
import grpc.aio
import structlog
from google.protobuf.message import Message

from dledger.clock import Clock
from dledger_broker.cluster.channels import FORWARDED_KEY, GROUP_KEY, Channels
from dledger_broker.group.group_view import ANSWER_BY
from dledger_broker.rpc.admission import AdmissionControl, Bound
from dledger_broker.usecases.messaging import Messaging
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc import raw, status

DEADLINE_DEFAULT_SECONDS: Final = 10.0
DEADLINE_MAX_SECONDS: Final = 300.0
ANSWER_SHARE: Final = 0.9
"""Of the time that a caller has: a refusal that comes after it is an unknown outcome."""
ELECTION_WAIT_SECONDS: Final = 0.1
"""How often a call that waits for a leader looks again, besides at every change."""

BUGS: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
    ValueError, struct.error,
)  # fmt: skip
"""What our own code raises when it is wrong. What the storage raises is none of it."""

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


class Method(Generic[Request, Reply]):
    """A unary method as a member calls it at another: its name and the type of its reply."""

    def __init__(self, service: str, name: str, reply: type[Reply]) -> None:
        self.path = f"/dledger.v1.{service}/{name}"
        self.reply = reply


def said_by(context: AnyContext) -> dict[str, str]:
    """Return a call's metadata by name."""
    pairs = cast("Iterable[tuple[str, str | bytes]]", context.invocation_metadata() or ())
    return {
        key: value if isinstance(value, str) else value.decode(errors="replace")
        for key, value in pairs
    }


class Call:
    """One call: its metadata, and until when it may take."""

    def __init__(self, context: AnyContext, clock: Clock) -> None:
        self.said: Mapping[str, str] = said_by(context)
        remaining = context.time_remaining()
        if remaining is None:
            remaining = DEADLINE_DEFAULT_SECONDS
        self._clock = clock
        self.deadline = clock.monotonic() + ANSWER_SHARE * min(remaining, DEADLINE_MAX_SECONDS)

    @property
    def is_forwarded(self) -> bool:
        """A member forwarded this call; it is not forwarded again."""
        return FORWARDED_KEY in self.said

    def seconds_left(self) -> float:
        """Return the seconds until it must be answered, never negative."""
        return max(0.0, self.deadline - self._clock.monotonic())


class Calls:
    """The groups of a process as its services see them."""

    def __init__(
        self,
        groups: Mapping[str, Messaging],
        admission: AdmissionControl,
        channels: Channels,
        clock: Clock,
    ) -> None:
        self.groups = groups
        self.admission = admission
        self.channels = channels
        self.clock = clock
        self._log = structlog.get_logger()

    def group_of(self, call: Call) -> Messaging:
        """Return the group that a call's metadata names, or the only one."""
        return self.group_named(call.said.get(GROUP_KEY, ""))

    def group_named(self, name: str) -> Messaging:
        """Return a group, with an empty name the only one; DledgerError when it is not here."""
        if not name and len(self.groups) == 1:
            return next(iter(self.groups.values()))
        found = self.groups.get(name)
        if found is not None:
            return found
        hosted = ", ".join(self.groups)
        if not name:
            raise DledgerError(
                Code.INVALID_ARGUMENT, f"metadata {GROUP_KEY} must name one of {hosted}"
            )
        raise DledgerError(Code.WRONG_GROUP, f"{name!r} is not served here, but {hosted}")

    async def answer(
        self,
        context: "grpc.aio.ServicerContext[Request, Reply]",
        bound: Bound,
        run: Callable[[Call], Awaitable[Reply]],
    ) -> Reply:
        """Run one unary call under its bound; errors leave as statuses (S140)."""
        try:
            self.admission.check_open()
            with bound.held():
                call = Call(context, self.clock)
                ANSWER_BY.set(call.deadline)  # of this call's own context
                return await run(call)
        except DledgerError as error:
            await status.abort(context, error)
        except BUGS as error:
            await self.fail(context, error)

    async def fail(self, context: status.AbortableContext, bug: Exception) -> NoReturn:
        """End a call that met a bug; whether it took effect is unknown."""
        self._log.error("call failed because of a bug in dledger", exc_info=bug)
        sentence = f"{type(bug).__name__}: {bug}"
        await status.abort(context, DledgerError(Code.INTERNAL, sentence))

    async def on_leader(
        self,
        call: Call,
        messaging: Messaging,
        method: Method[Request, Reply],
        request: Request,
        execute: Callable[[], Awaitable[Reply]],
    ) -> Reply:
        """Execute a write where the group is led: here, or forwarded once."""
        view = messaging.view
        while True:
            if view.leads:
                try:
                    return await execute()
                except DledgerError as error:
                    if error.code not in (Code.NOT_LEADER, Code.NO_LEADER):
                        raise
            if call.is_forwarded:
                raise view.not_leader()
            address = view.leader_peer_address()
            if address and view.leader != view.names.member:
                return await self.forward(
                    call, address, view.names.group, method, request, forwarded=True
                )
            left = call.seconds_left()
            if left <= 0:
                raise view.no_leader()
            await view.leadership_change(min(left, ELECTION_WAIT_SECONDS))

    async def forward(
        self,
        call: Call,
        address: str,
        group: str,
        method: Method[Request, Reply],
        request: Request,
        *,
        forwarded: bool,
        write: bool = True,
    ) -> Reply:
        """Make the same call at another member, once; its error is ours."""
        metadata = [(GROUP_KEY, group)]
        if forwarded:
            metadata.append((FORWARDED_KEY, "1"))
        unary = raw.raw_unary(self.channels.to(address), method.path)
        try:
            answer = await unary(
                request.SerializeToString(),
                timeout=max(call.seconds_left(), 0.001),  # zero would mean no deadline
                metadata=metadata,
            )
        except grpc.aio.AioRpcError as error:
            raise status.from_rpc_error(error, write=write) from None
        return method.reply.FromString(answer)
