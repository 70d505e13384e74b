"""The one error table: server, client, harness and Spark read outcomes from here (D11).

A code is *definite* when the operation certainly did not take effect. A code is *retriable* when
the same call may succeed later or elsewhere, and a repeat does no harm. After an unknown outcome
the call decides: its error is *repeatable* or, by default, not. Numbers are on the wire and are
never reused.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


class Outcome(enum.Enum):
    """What is known about a proposed write. The three are never mixed."""

    STORED = "stored"
    NOT_STORED = "not stored"
    UNKNOWN = "unknown"


class Code(enum.IntEnum):
    """Wire number of every answer that a member or a name server gives."""

    OK = 0
    # 1xx: ask elsewhere or later; nothing happened.
    NOT_LEADER = 100
    NO_LEADER = 101
    WRONG_GROUP = 102
    BUSY = 103
    SHUTTING_DOWN = 104
    NOT_FORMED = 105
    DISK_FULL = 106
    NOT_PROPOSED = 107
    STORAGE_FAILED = 108
    HEAD_TRIMMED = 109
    UNAVAILABLE = 110
    # 2xx: the outcome is unknown.
    UNKNOWN_OUTCOME = 200
    # 3xx: the caller must change something.
    INVALID_ARGUMENT = 300
    CORRUPT_BATCH = 301
    UNSUPPORTED_FORMAT = 302
    MESSAGE_ILLEGAL = 303
    MESSAGE_TOO_LARGE = 304
    TOPIC_NOT_FOUND = 305
    TOPIC_EXISTS = 306
    QUEUE_NOT_FOUND = 307
    NO_PERMISSION = 308
    OFFSET_OUT_OF_RANGE = 309
    OFFSET_BEHIND = 310
    NOT_FOUND = 311
    WRONG_CLUSTER = 312
    UNIMPLEMENTED = 313
    # 314 is gone.
    STALE_LAYOUT = 315
    HELD = 316
    CLOSED = 317
    TOO_MANY_HOLDS = 318
    TOO_MANY_TOPICS = 320
    STALE_CREATION = 321
    UNREADABLE_BATCH = 319
    # 33x: consumer groups.
    FENCED = 330
    LEASED = 331
    OFFSET_RESET = 332
    TOO_MANY_RANGES = 333
    CONSUMER_GROUP_NOT_FOUND = 334
    CONSUMER_GROUP_EXISTS = 335
    SUBSCRIPTION_CONFLICT = 336
    ORDER_CONFLICT = 337
    TOO_MANY_CONSUMERS = 338
    SESSION_ENDED = 339
    TOO_MANY_TIMERS = 340
    GROUP_PAUSED = 341
    # 35x: users.
    UNAUTHENTICATED = 350
    USER_NOT_FOUND = 351
    USER_EXISTS = 352
    # 4xx: idempotent producers.
    UNKNOWN_PRODUCER = 400
    STALE_EPOCH = 401
    SEQUENCE_GAP = 402
    DUPLICATE = 403
    TOO_MANY_IN_FLIGHT = 404
    # 5xx: a bug in dledger.
    INTERNAL = 500


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a code says about the operation: did it certainly not happen, and is a retry of use?"""

    definite: bool
    retriable: bool
    sentence: str


def _no(sentence: str) -> Meaning:
    return Meaning(definite=True, retriable=False, sentence=sentence)


def _later(sentence: str) -> Meaning:
    return Meaning(definite=True, retriable=True, sentence=sentence)


MEANINGS: Final[dict[Code, Meaning]] = {
    Code.OK: _no("done"),
    Code.NOT_LEADER: _later("this member does not lead the group; the answer names who does"),
    Code.NO_LEADER: _later("the group has no leader now"),
    Code.WRONG_GROUP: _later("the queue belongs to another group; refresh the route"),
    Code.BUSY: _later("a bound on waiting work is reached; slow down"),
    Code.SHUTTING_DOWN: _later("the member is draining; use another"),
    Code.NOT_FORMED: _later("the group has not formed: not all members have met yet"),
    Code.DISK_FULL: _later(
        "the disk is at its low-water mark; only what frees space is written, reads go on"
    ),
    Code.NOT_PROPOSED: _later("the deadline passed before the write was proposed"),
    Code.STORAGE_FAILED: _later(
        "the member cannot read or write what it stores; it stops, or mends it"
    ),
    Code.HEAD_TRIMMED: _no("the log before this position is trimmed"),
    Code.UNAVAILABLE: _later("the member could not be reached; nothing was sent"),
    Code.UNKNOWN_OUTCOME: Meaning(
        definite=False, retriable=False, sentence="the write may or may not be stored"
    ),
    Code.INVALID_ARGUMENT: _no("a field has a value outside its limit"),
    Code.CORRUPT_BATCH: _no("the batch does not match its checksum or its own sizes"),
    Code.UNREADABLE_BATCH: _no("the batch is as it was sent, but its content cannot be decoded"),
    Code.UNSUPPORTED_FORMAT: _no("the format's version or a required flag is not known here"),
    Code.MESSAGE_ILLEGAL: _no("the message breaks a rule"),
    Code.MESSAGE_TOO_LARGE: _no("the message is above the size limit"),
    Code.TOPIC_NOT_FOUND: _no("no such topic"),
    Code.TOPIC_EXISTS: _no("a topic of this name exists with another configuration"),
    Code.QUEUE_NOT_FOUND: _no("the topic has no such queue"),
    Code.NO_PERMISSION: _no("the topic does not permit this, or the user may not"),
    Code.OFFSET_OUT_OF_RANGE: _no("the offset is below the queue's minimum or above its maximum"),
    Code.OFFSET_BEHIND: _no("the stored offset is higher; only an explicit reset goes back"),
    Code.NOT_FOUND: _no("nothing is stored under this name"),
    Code.WRONG_CLUSTER: _no("cluster, group or member identity does not match"),
    Code.UNIMPLEMENTED: _no("not part of this version"),
    Code.STALE_LAYOUT: _later("a newer layout of the topic is known; refresh the route"),
    Code.HELD: _no("a hold keeps this part of the log"),
    Code.TOO_MANY_HOLDS: _no("the queue has as many holds as it may have; let one end first"),
    Code.TOO_MANY_TOPICS: _no("the cluster has as many topics as it may have; delete some first"),
    Code.STALE_CREATION: _no("the creation is older than what is remembered of deleted topics"),
    Code.CLOSED: _no("this client object is closed, or was not started"),
    Code.FENCED: _no("a newer claim of the queue is known; the sender does not own it any more"),
    Code.LEASED: _later("another consumer has the queue until its lease ends or is given back"),
    Code.OFFSET_RESET: _no("the offset was reset meanwhile; claim the queue again"),
    Code.TOO_MANY_RANGES: _later("too many done ranges above the floor; commit the oldest first"),
    Code.CONSUMER_GROUP_NOT_FOUND: _no("no such consumer group"),
    Code.CONSUMER_GROUP_EXISTS: _no("a consumer group of this name has other settings"),
    Code.SUBSCRIPTION_CONFLICT: _no("consumers of one group must subscribe to the same topics"),
    Code.ORDER_CONFLICT: _no("an ordered consumer group needs ordered consumers, and the reverse"),
    Code.TOO_MANY_CONSUMERS: _no("the consumer group has as many consumers as it may have"),
    Code.SESSION_ENDED: _no("the consumer's session is over; join again"),
    Code.TOO_MANY_TIMERS: _later("as many timers are waiting as may wait; let some fire first"),
    Code.GROUP_PAUSED: _later("the consumer group is paused: resume it when its cause is gone"),
    Code.UNAUTHENTICATED: _no("nobody has logged in who may make this call"),
    Code.USER_NOT_FOUND: _no("no such user"),
    Code.USER_EXISTS: _no("a user of this name exists and is another, or users have changed since"),
    Code.UNKNOWN_PRODUCER: _no("the producer id is not registered or has expired"),
    Code.STALE_EPOCH: _no("a newer epoch of this producer is registered"),
    Code.SEQUENCE_GAP: _no("the batch does not follow the producer's last sequence"),
    Code.DUPLICATE: _no("stored before; the original offset is no longer remembered"),
    Code.TOO_MANY_IN_FLIGHT: _later("more batches are in flight than the table remembers"),
    Code.INTERNAL: Meaning(definite=False, retriable=False, sentence="a bug in dledger"),
}

assert set(MEANINGS) == set(Code), "every code has a meaning"


class DledgerError(Exception):
    """An answer other than OK, as an exception: the code, and a sentence naming field and limit."""

    def __init__(
        self, code: Code, detail: str = "", *, hint: str = "", repeatable: bool = False
    ) -> None:
        super().__init__(f"{code.name}: {detail or MEANINGS[code].sentence}")
        self.code = code
        self.detail = detail
        self.hint = hint
        """For NOT_LEADER and WRONG_GROUP: the "host:port" to ask instead, or empty."""
        self.repeatable = repeatable
        """True: the call may be repeated after an unknown outcome; twice has the effect of once."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the fields: `args` is the sentence, which is no argument of the constructor."""
        return _restored, (type(self), self.args, self.__dict__)

    @property
    def definite(self) -> bool:
        """True: the operation certainly did not take effect."""
        return MEANINGS[self.code].definite

    @property
    def retriable(self) -> bool:
        """True: the same call may succeed later, or at another member, and its repeat is safe.

        After an unknown outcome only a `repeatable` call may be repeated.
        """
        if self.code is Code.UNKNOWN_OUTCOME:
            return self.repeatable
        return MEANINGS[self.code].retriable


def invalid(sentence: str) -> DledgerError:
    """Return the error of a request that names a value outside its limit."""
    return DledgerError(Code.INVALID_ARGUMENT, sentence)


def unreadable(sentence: str) -> DledgerError:
    """Return the error of a batch whose bytes are right and whose content cannot be decoded.

    Unlike CORRUPT_BATCH, the error holds for every copy: another member has the same bytes.
    """
    return DledgerError(Code.UNREADABLE_BATCH, sentence)


def _restored(
    kind: type[DledgerError], args: tuple[object, ...], fields: Mapping[str, object]
) -> DledgerError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error
