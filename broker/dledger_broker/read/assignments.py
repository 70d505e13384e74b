"""What a reader asks of a fetch stream: its queues, and how frames are to be sent.

Owns: the limits of a request, and which of its queues can be read. Not owned: sending (`fetch`).
"""

from dataclasses import dataclass
from typing import Final

from dledger.types import QueueOffset
from dledger_broker.usecases.messaging import Messaging
from dledger_broker.usecases.queues import OF_ONE_QUEUE, resolve_each
from dledger_proto.errors import DledgerError, invalid
from dledger_proto.limits import FETCH_ASSIGNMENTS_MAX, FRAME_SIZE_MAX, FRAME_SIZE_TARGET, MIB
from dledger_proto.v1 import broker_pb2 as pb

WAIT_DEFAULT_MS: Final = 15_000
WAIT_MIN_MS: Final = 10
WAIT_MAX_MS: Final = 60_000
FRAME_DATA_MAX: Final = FRAME_SIZE_MAX - MIB


@dataclass(slots=True)
class Assignment:
    """One queue of a fetch stream, and how far it was sent."""

    number: int
    topic_id: bytes
    queue: int
    offset: QueueOffset
    is_over: bool = False
    refusal: DledgerError | None = None
    """Why the queue cannot be read at all; its only frame says so."""


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """What the reader asked for, within the limits of a member."""

    max_bytes: int
    wait_ms: int
    once: bool
    with_positions: bool = False
    with_origins: bool = False

    @classmethod
    def of(
        cls,
        max_bytes: int,
        wait_ms: int,
        *,
        once: bool,
        with_positions: bool = False,
        with_origins: bool = False,
    ) -> "FetchOptions":
        """Apply defaults and limits; zero is the default, of `wait_ms` only when not `once`."""
        wait = min(wait_ms, WAIT_MAX_MS)
        if not once:
            wait = max(wait or WAIT_DEFAULT_MS, WAIT_MIN_MS)
        limit = min(max_bytes or FRAME_SIZE_TARGET, FRAME_DATA_MAX)
        return cls(limit, wait, once, with_positions, with_origins)


async def assignments_of(messaging: Messaging, request: pb.FetchRequest) -> list[Assignment]:
    """Return the assignments of a request; DledgerError when this member can serve none now.

    A queue that is not here, or may not be read, is refused alone: the others are served.
    """
    if not 1 <= len(request.assignments) <= FETCH_ASSIGNMENTS_MAX:
        raise invalid(
            f"{len(request.assignments)} assignments, must be 1 to {FETCH_ASSIGNMENTS_MAX}"
        )
    queues = await resolve_each(messaging, [wanted.queue for wanted in request.assignments])
    assignments: list[Assignment] = []
    for number, (wanted, queue) in enumerate(zip(request.assignments, queues, strict=True)):
        ref = wanted.queue
        assignment = Assignment(number, ref.topic_id, ref.queue, QueueOffset(wanted.offset))
        assignments.append(assignment)
        if isinstance(queue, DledgerError):
            assignment.refusal = queue
            continue
        try:
            await messaging.bounds(queue)
            assignment.topic_id = queue.topic_id
        except DledgerError as error:
            if error.code not in OF_ONE_QUEUE:
                raise
            assignment.refusal = error
    return assignments
