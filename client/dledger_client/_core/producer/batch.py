"""One batch of a producer, from its first record to its outcome. Pure.

Owns: the records, the stamp, the history of tries, the outcome. Not: when it is sent or repeated
(`lane.py` orders, `batch_fate.py` decides).

Two flags say what is known about a batch. `is_outstanding`: a try is on its way and not answered.
`maybe_stored`: a try ended without a definite answer, so the batch may lie in the log. From then on
only a repeat with the same stamp, or a new epoch, can tell. Both false: certainly not stored.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from dledger_client.errors import ClientError
from dledger_client.model import Acknowledgement, SendResult
from dledger_proto.batch.codec import (
    Compression,
    ProducerStamp,
    Record,
    encode_batch,
    message_id,
    restamp,
)

BATCH_OVERHEAD_BYTES = 192
"""Upper bound of a batch's header, for sums before it is encoded."""


@dataclass(slots=True, eq=False, repr=False)
class Batch:
    """Records for one queue that are sent, repeated and acknowledged together."""

    topic: str
    topic_id: bytes
    queue: int
    group: str
    records: list[Record] = field(default_factory=list)
    size: int = BATCH_OVERHEAD_BYTES
    """Upper bound of the encoded size, bytes."""
    count: int = 0
    """Records; stays when `records` is let go."""
    created_at: float = 0.0
    deadline: float = 0.0
    """End of the budget of all tries, monotonic seconds."""
    is_keyed: bool = False
    """Every record is bound to this queue by its ordering key: its topic is FIFO."""
    is_movable: bool = True
    """No record is bound to this queue by number, ordering key or selector."""
    delivery_time_ms: int = 0
    """Milliseconds since 1970; 0: at once."""
    base_number: int = -1
    base_sequence: int = -1
    """-1: not stamped."""
    producer_id: bytes = b""
    _stamped_epoch: int = field(init=False, default=-1)
    encoded: bytes | None = None
    tries: int = 0
    gaps: int = 0
    """Tries refused as SEQUENCE_GAP although no earlier batch of the queue was missing."""
    is_outstanding: bool = False
    maybe_stored: bool = False
    retry_at: float = 0.0
    last_error: ClientError | None = None
    members_tried: list[str] = field(default_factory=list)
    is_settled: bool = False
    error: ClientError | None = None
    base_offset: int = -1
    index: int = 0
    term: int = 0
    duplicate: bool = False
    before_sync: bool = False
    _observers: deque[Callable[[], object]] = field(init=False, default_factory=deque)

    def encode(self, stamp: ProducerStamp | None, base_time_ms: int, kind: Compression) -> bytes:
        """Return the batch's bytes under `stamp`; a repeat under the same stamp costs nothing."""
        encoded = self.encoded
        if encoded is None:
            encoded = encode_batch(
                self.records,
                topic_id=self.topic_id,
                queue=self.queue,
                stamp=stamp,
                base_number=self.base_number,
                base_time_ms=base_time_ms,
                compression=kind,
                keyed=self.is_keyed,
                delivery_time_ms=self.delivery_time_ms,
            )
        elif stamp is not None and (stamp.epoch, stamp.base_sequence) != (
            self._stamped_epoch,
            self.base_sequence,
        ):
            encoded = restamp(encoded, stamp)
        self.encoded = encoded
        if stamp is not None:
            self._stamped_epoch = stamp.epoch
            self.base_sequence = stamp.base_sequence
            self.producer_id = stamp.producer_id
        return encoded

    def unstamp(self) -> None:
        """Take the stamp off a batch that is certainly not stored."""
        assert not self.is_outstanding, f"{self.describe()}: a try is on its way"
        self.base_sequence = -1
        self.maybe_stored = False

    def move_to(self, topic_id: bytes, queue: int, group: str) -> None:
        """Bind a batch that is certainly not stored to another queue of its topic."""
        assert self.base_sequence < 0, f"{self.describe()}: still stamped"
        self.topic_id = topic_id
        self.queue = queue
        self.group = group
        self.encoded = None

    def observe(self, observer: Callable[[], object]) -> None:
        """Call `observer` once: when the batch settles, or now if it is. Any thread.

        An observer must not raise. This method adds the observer and then looks whether the batch
        is settled. The loop settles the batch and then takes the observers. One of the two sees
        the other. Taking is atomic, so that each observer is called once without a lock.
        """
        self._observers.append(observer)
        if self.is_settled:
            self._call_observers()

    def _call_observers(self) -> None:
        observers = self._observers
        try:
            while observers:
                try:
                    observer = observers.popleft()
                except IndexError:  # another thread took the last
                    return
                observer()
        finally:
            if observers:  # one raised: the others still wait for the outcome
                self._call_observers()

    def settle_stored(
        self, base_offset: int, index: int, term: int, *, duplicate: bool, before_sync: bool
    ) -> None:
        """Note that the batch is stored; `base_offset` -1: the group has forgotten where."""
        self.base_offset = base_offset
        self.index = index
        self.term = term
        self.duplicate = duplicate
        self.before_sync = before_sync
        self._settle()

    def settle_failed(self, error: ClientError) -> None:
        """Note that the batch failed for good."""
        self.error = error
        self._settle()

    def _settle(self) -> None:
        assert not self.is_settled, f"{self.describe()}: settled twice"
        self.is_outstanding = False
        self.records = []
        self.encoded = None
        self.is_settled = True
        self._call_observers()

    def result_of(self, position: int) -> SendResult:
        """Return the result of one record of a stored batch."""
        return SendResult(
            topic=self.topic,
            group=self.group,
            queue=self.queue,
            offset=self.base_offset + position if self.base_offset >= 0 else -1,
            index=self.index,
            term=self.term,
            message_id=message_id(self.producer_id, self.base_number + position)
            if self.producer_id
            else b"",
            acknowledgement=Acknowledgement.MAJORITY_WRITTEN
            if self.before_sync
            else Acknowledgement.MAJORITY_SYNCED,
            duplicate=self.duplicate,
        )

    def describe(self) -> str:
        """Return one stable line for logs and tests."""
        flags = "".join(
            letter
            for letter, is_set in (
                ("o", self.is_outstanding),
                ("u", self.maybe_stored),
                ("s", self.is_settled),
            )
            if is_set
        )
        return (
            f"{self.topic}/{self.queue} n={self.base_number}+{self.count}"
            f" seq={self.base_sequence} tries={self.tries} {flags or '-'}"
        )
