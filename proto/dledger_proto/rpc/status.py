"""Errors as gRPC status and back: code and hint travel in trailing metadata.

Owns: the mapping both ways. Does not own: what a caller does after a broken call. A status without
dledger's metadata came from gRPC itself: the connection broke, the deadline passed, or a proxy
answered. Then a write has an unknown outcome, because nothing is known of the server.
"""

from typing import Final, NoReturn, Protocol, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message

from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import DETAIL_SIZE_MAX
from dledger_proto.network.tls_words import explained

Request = TypeVar("Request", bound=Message)

CODE_KEY: Final = "dledger-code"
HINT_KEY: Final = "dledger-hint"

_S = grpc.StatusCode
STATUS: Final[dict[Code, grpc.StatusCode]] = {
    Code.OK: _S.OK,
    Code.NOT_LEADER: _S.UNAVAILABLE,
    Code.NO_LEADER: _S.UNAVAILABLE,
    Code.WRONG_GROUP: _S.FAILED_PRECONDITION,
    Code.BUSY: _S.RESOURCE_EXHAUSTED,
    Code.SHUTTING_DOWN: _S.UNAVAILABLE,
    Code.NOT_FORMED: _S.UNAVAILABLE,
    Code.DISK_FULL: _S.RESOURCE_EXHAUSTED,
    Code.NOT_PROPOSED: _S.DEADLINE_EXCEEDED,
    Code.STORAGE_FAILED: _S.UNAVAILABLE,
    Code.HEAD_TRIMMED: _S.OUT_OF_RANGE,
    Code.UNAVAILABLE: _S.UNAVAILABLE,
    Code.UNKNOWN_OUTCOME: _S.UNKNOWN,
    Code.INVALID_ARGUMENT: _S.INVALID_ARGUMENT,
    Code.CORRUPT_BATCH: _S.INVALID_ARGUMENT,
    Code.UNSUPPORTED_FORMAT: _S.INVALID_ARGUMENT,
    Code.MESSAGE_ILLEGAL: _S.INVALID_ARGUMENT,
    Code.MESSAGE_TOO_LARGE: _S.INVALID_ARGUMENT,
    Code.TOPIC_NOT_FOUND: _S.NOT_FOUND,
    Code.TOPIC_EXISTS: _S.ALREADY_EXISTS,
    Code.QUEUE_NOT_FOUND: _S.NOT_FOUND,
    Code.NO_PERMISSION: _S.PERMISSION_DENIED,
    Code.OFFSET_OUT_OF_RANGE: _S.OUT_OF_RANGE,
    Code.OFFSET_BEHIND: _S.FAILED_PRECONDITION,
    Code.NOT_FOUND: _S.NOT_FOUND,
    Code.WRONG_CLUSTER: _S.FAILED_PRECONDITION,
    Code.UNIMPLEMENTED: _S.UNIMPLEMENTED,
    Code.STALE_LAYOUT: _S.FAILED_PRECONDITION,
    Code.HELD: _S.FAILED_PRECONDITION,
    Code.TOO_MANY_HOLDS: _S.RESOURCE_EXHAUSTED,
    Code.TOO_MANY_TOPICS: _S.RESOURCE_EXHAUSTED,
    Code.STALE_CREATION: _S.FAILED_PRECONDITION,
    Code.UNREADABLE_BATCH: _S.INVALID_ARGUMENT,
    Code.CLOSED: _S.FAILED_PRECONDITION,
    Code.FENCED: _S.FAILED_PRECONDITION,
    Code.LEASED: _S.RESOURCE_EXHAUSTED,
    Code.OFFSET_RESET: _S.FAILED_PRECONDITION,
    Code.TOO_MANY_RANGES: _S.RESOURCE_EXHAUSTED,
    Code.CONSUMER_GROUP_NOT_FOUND: _S.NOT_FOUND,
    Code.CONSUMER_GROUP_EXISTS: _S.ALREADY_EXISTS,
    Code.SUBSCRIPTION_CONFLICT: _S.FAILED_PRECONDITION,
    Code.ORDER_CONFLICT: _S.FAILED_PRECONDITION,
    Code.TOO_MANY_CONSUMERS: _S.RESOURCE_EXHAUSTED,
    Code.SESSION_ENDED: _S.FAILED_PRECONDITION,
    Code.TOO_MANY_TIMERS: _S.RESOURCE_EXHAUSTED,
    Code.GROUP_PAUSED: _S.FAILED_PRECONDITION,
    Code.UNAUTHENTICATED: _S.UNAUTHENTICATED,
    Code.USER_NOT_FOUND: _S.NOT_FOUND,
    Code.USER_EXISTS: _S.ALREADY_EXISTS,
    Code.UNKNOWN_PRODUCER: _S.FAILED_PRECONDITION,
    Code.STALE_EPOCH: _S.FAILED_PRECONDITION,
    Code.SEQUENCE_GAP: _S.FAILED_PRECONDITION,
    Code.DUPLICATE: _S.ALREADY_EXISTS,
    Code.TOO_MANY_IN_FLIGHT: _S.RESOURCE_EXHAUSTED,
    Code.INTERNAL: _S.INTERNAL,
}
assert set(STATUS) == set(Code), "every code has a status"


class AbortableContext(Protocol):
    """What `abort` needs of a `grpc.aio.ServicerContext`, whatever its message types."""

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: tuple[tuple[str, str], ...] = (),
    ) -> NoReturn:
        """End the call with a status."""
        ...


def trailing_metadata(error: DledgerError) -> tuple[tuple[str, str], ...]:
    """Return the metadata that carries an error: its number and, when there is one, its hint."""
    code = ((CODE_KEY, str(int(error.code))),)
    if not error.hint:
        return code
    # Metadata is printable ASCII; a hint is "host:port".
    hint = error.hint[:DETAIL_SIZE_MAX].encode("ascii", errors="replace").decode()
    return (*code, (HINT_KEY, "".join(c if c.isprintable() else "?" for c in hint)))


async def abort(context: AbortableContext, error: DledgerError) -> NoReturn:
    """End the server's call with the status of `error`; never returns."""
    if error.code is Code.OK:
        raise ValueError("OK is no error")
    details = error.detail[:DETAIL_SIZE_MAX].encode(errors="replace").decode()
    await context.abort(STATUS[error.code], details, trailing_metadata(error))


def answer_of(kind: type[Request], data: bytes, *, write: bool) -> Request:
    """Return the message of an answer's bytes.

    When they are none, it is not known what the call did: UNKNOWN_OUTCOME for a write, UNAVAILABLE
    for a read.
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        code = Code.UNKNOWN_OUTCOME if write else Code.UNAVAILABLE
        raise DledgerError(code, f"the answer is no {kind.__name__}: {error}") from None


def parsed(kind: type[Request], data: bytes) -> Request:
    """Return the message of these bytes; INVALID_ARGUMENT when they are not one."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise invalid(f"not a {kind.__name__}: {error}") from None


class _Failure(Protocol):
    """What grpc's and grpc.aio's RpcError both have."""

    def code(self) -> grpc.StatusCode | None: ...

    def details(self) -> str | None: ...

    def trailing_metadata(self) -> "list[tuple[str, str | bytes]] | None": ...


def from_rpc_error(error: grpc.RpcError, *, write: bool = True) -> DledgerError:
    """Return what a failed call means.

    Without dledger's metadata it is not known how far the call came: UNKNOWN_OUTCOME for a write,
    UNAVAILABLE for a read. A method that the server does not have is UNIMPLEMENTED for both.
    """
    if not hasattr(error, "code"):
        return _unexplained(None, str(error), write)
    failure = cast("_Failure", error)
    details = failure.details() or ""
    metadata = dict(failure.trailing_metadata() or ())
    number = _text(metadata.get(CODE_KEY, ""))
    if not number:
        return _unexplained(failure.code(), details, write)
    try:
        code = Code(int(number))
    except ValueError:
        return _unexplained(failure.code(), f"code {number[:16]} is not known: {details}", write)
    if code is Code.OK:
        return _unexplained(failure.code(), details, write)
    return DledgerError(code, details, hint=_text(metadata.get(HINT_KEY, "")))


def _unexplained(status: grpc.StatusCode | None, details: str, write: bool) -> DledgerError:
    name = status.name if status is not None else "no status"
    if status is grpc.StatusCode.UNIMPLEMENTED:
        return DledgerError(Code.UNIMPLEMENTED, details)
    code = Code.UNKNOWN_OUTCOME if write else Code.UNAVAILABLE
    return DledgerError(code, f"{name}: {explained(details)}")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")
