"""The values that users of this package send and get back; records as read: `records.py`."""

import enum
from dataclasses import dataclass

from dledger_proto.batch import Record

Message = Record
"""One message to send: body, tag, keys, properties, time_ms (0: when it was handed over)."""


class Acknowledgement(enum.StrEnum):
    """What a majority had done when the acknowledgement left (D4)."""

    MAJORITY_SYNCED = "majority-synced"
    MAJORITY_WRITTEN = "majority-written"
    """`flush: async`: a power cut of the whole group may lose it."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """A stored message. Only what is stored has a result; everything else is an exception."""

    topic: str
    group: str
    """The broker group that stores it."""
    queue: int
    offset: int
    """Place in the queue. -1: stored by an earlier try, and its offset is not remembered any more
    (`duplicate` is then true)."""
    index: int
    """Index of its log entry; 0 when not known."""
    term: int
    message_id: bytes
    """24 bytes: producer id, running number. Empty without idempotence."""
    acknowledgement: Acknowledgement
    duplicate: bool
    """An earlier try had stored it; this is what that try stored."""

    @property
    def offset_id(self) -> str:
        """The message's place as text: group/topic/queue/offset."""
        return f"{self.group}/{self.topic}/{self.queue}/{self.offset}"
