"""What the core of a group's consumer asks its driver to do: a closed list."""

import enum
from dataclasses import dataclass

from dledger_client._core.group.queues import HeldQueue
from dledger_client._core.routes import RefreshRoutes
from dledger_client.errors import ClientError
from dledger_proto.v1 import broker_pb2, delivery_pb2


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Open a session stream; answer with `session_reply` and, at its end, `session_down`."""

    stream: int
    group: str
    address: str
    join: delivery_pb2.SessionRequest


@dataclass(frozen=True, slots=True)
class TellSession:
    """Write to a session stream; no answer is expected."""

    stream: int
    request: delivery_pb2.SessionRequest


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Close a stream; no answer is expected."""

    stream: int


Request = (
    delivery_pb2.ClaimQueuesRequest
    | delivery_pb2.ReleaseQueuesRequest
    | delivery_pb2.FailRecordsRequest
    | broker_pb2.CommitOffsetsRequest
)
Reply = (
    delivery_pb2.ClaimQueuesReply
    | delivery_pb2.ReleaseQueuesReply
    | delivery_pb2.FailRecordsReply
    | broker_pb2.CommitOffsetsReply
)


@dataclass(frozen=True, slots=True)
class Ask:
    """Make a call to a home group; answer with `answered` or `unanswered`."""

    call: int
    group: str
    request: Request


@dataclass(frozen=True, slots=True)
class StartQueue:
    """A queue is claimed: read it from `offset` on; -1: from where the group begins."""

    held: HeldQueue
    offset: int


class Why(enum.Enum):
    """Why a queue is not read on."""

    REVOKED = "revoked"
    """Finish what is in hand, then `let_go`: it may still be committed."""
    LOST = "lost"
    """Another consumer owns it, or its lease or the session is over: nothing is committed."""
    RESET = "reset"
    """Its offset was reset: drop what is in hand. It starts again by itself."""


@dataclass(frozen=True, slots=True)
class StopQueue:
    """Hand out nothing more of a queue."""

    held: HeldQueue
    why: Why


@dataclass(frozen=True, slots=True)
class Failed:
    """A failure is stored: it is this record's `attempts`-th; when to deliver the record again."""

    held: HeldQueue
    offset: int
    attempts: int
    is_done: bool
    """The record is done in this queue: it comes again by the retry topic, or is dead."""
    again_at: float


@dataclass(frozen=True, slots=True)
class FailureRests:
    """The home group refused a failure; it is told again after a pause. For people only."""

    held: HeldQueue
    offset: int
    error: ClientError
    seconds: float


@dataclass(frozen=True, slots=True)
class CommitDone:
    """What a `commit` asked for is stored, or is not."""

    ticket: int
    error: ClientError | None


@dataclass(frozen=True, slots=True)
class Joined:
    """The session stands."""

    group: delivery_pb2.ConsumerGroup


@dataclass(frozen=True, slots=True)
class Ended:
    """The consumer cannot be in its group: whoever waits for records gets the error."""

    error: ClientError


Action = (
    OpenSession | TellSession | CloseSession | Ask | StartQueue | StopQueue | Failed | FailureRests
    | CommitDone | Joined | Ended | RefreshRoutes
)  # fmt: skip
