"""A queue that the consumer was granted, from the grant until it is given back. Pure.

Owns: the states of such a queue. Not: what leads from one to the next (`core.py`, `claims.py`).

    CLAIMING --answer--> SERVING --revoked--> LEAVING --let go, committed--> RELEASING --> GONE
        |                   |                    |
        +---- fenced, lease over, session ended: LOST, GONE

One object is one *claim*: after a reset, or with a later grant, the queue gets a new object. So a
callback or an answer that belongs to an older claim, and comes late, never touches the newer (S97).
"""

import enum
import math
from dataclasses import dataclass, field

from dledger_client._core.consumer.state import Place
from dledger_client._core.group.progress import Progress
from dledger_proto.v1 import broker_pb2, delivery_pb2


class QueueState(enum.Enum):
    """How far a granted queue is."""

    CLAIMING = "claiming"
    SERVING = "serving"
    LEAVING = "leaving"
    """Revoked: nothing more is handed out; what is in hand is finished, then committed."""
    RELEASING = "releasing"
    """The home group is told that the claim is over."""
    GONE = "gone"


@dataclass(slots=True, eq=False, repr=False)
class HeldQueue:
    """One claim of one queue."""

    place: Place
    topic_id: bytes
    group: str
    """Its home group."""
    epoch: int
    state: QueueState = QueueState.CLAIMING
    progress: Progress = field(default_factory=lambda: Progress(0))
    resets: int = 0
    attempts: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Of suspended records, as the claim told: attempts, and until when to wait."""
    lease_end: float = math.inf
    """Nothing is handed out from then on."""
    renew_at: float = math.inf
    rest_until: float = 0.0
    """Nothing is handed out until then: the group is paused."""
    is_asking: bool = False
    """A claim or a release is under way."""
    was_revoked: bool = False
    """While it is being claimed the coordinator asked it back."""
    committed: int = 0
    """`progress.changes` that commits have covered."""

    @property
    def name(self) -> str:
        """Topic and queue, for errors."""
        return f"{self.place[0]}/{self.place[1]}"

    @property
    def is_held(self) -> bool:
        """True: commits and failures of this claim may be sent."""
        return self.state in (QueueState.SERVING, QueueState.LEAVING)

    @property
    def is_dirty(self) -> bool:
        """True: something is done that no commit has covered."""
        return self.committed < self.progress.changes

    def may_hand_out(self, now: float) -> bool:
        """Return whether its records may be handed out now."""
        return self.state is QueueState.SERVING and self.rest_until <= now < self.lease_end

    def ref(self) -> broker_pb2.QueueRef:
        """Return how calls name it."""
        return broker_pb2.QueueRef(topic_id=self.topic_id, queue=self.place[1])

    def granted(self) -> delivery_pb2.GrantedQueue:
        """Return how the session names it."""
        return delivery_pb2.GrantedQueue(
            topic_id=self.topic_id, topic=self.place[0], queue=self.place[1], epoch=self.epoch
        )

    def describe(self) -> str:
        """Return one stable line for logs and tests."""
        return (
            f"{self.name} epoch={self.epoch} {self.state.value} floor={self.progress.floor}"
            f" resets={self.resets}"
        )
