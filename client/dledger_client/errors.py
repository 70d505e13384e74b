"""What users of this package catch. Every class says what is known and what helps.

```
DledgerError                        dledger_proto.errors: .code .detail .hint .definite .retriable
└── ClientError                     everything this package raises about a cluster
    ├── UnknownOutcome              the write may or may not be stored; see below
    ├── ServerBug                   a member met a bug of its own; nothing is known
    └── NotStored                   definite: nothing happened
        ├── Unavailable             nobody could take the call now; a retry helps
        │   └── DeadlineExpired     its time was over before anybody could take it
        ├── Overloaded              a bound on waiting work is reached; slow down
        │   └── BufferFull          the bound is this producer's own buffer
        ├── MessageIllegal          a field breaks a rule; the text names field, value and limit
        │   └── MessageTooLarge
        ├── CorruptData             bytes do not match their checksum
        │   └── UnreadableData      they do, but what the producer sent cannot be decoded
        ├── InvalidRequest          an argument is wrong, unknown to the cluster or switched off
        ├── TopicNotFound
        ├── TopicExists             with another configuration
        ├── TooManyTopics           the cluster has as many as it may have
        ├── QueueNotFound
        ├── NoPermission            the topic does not permit it, or the user may not
        ├── Unauthenticated         nobody has logged in who may do it
        ├── UserNotFound
        ├── UserExists              and is another, or users have changed since you looked
        ├── NothingFound            a lookup found nothing
        ├── OffsetOutOfRange        below the queue's minimum or above its maximum
        ├── OffsetBehind            a commit below the stored offset, without reset
        ├── ConsumerFenced          the queue belongs to another consumer of the group by now
        ├── OffsetWasReset          the offset of the queue was reset since its records were read
        ├── ConsumerGroupNotFound
        ├── ConsumerGroupExists     with other settings
        ├── ConsumerConflict        the consumer does not fit the others of its group
        ├── Held                    a hold keeps this part of the log
        ├── ClientClosed            this producer, consumer or admin was closed, for good
        └── ProducerRejected        the cluster does not take this producer's sequence
            └── ProducerFenced      a newer producer of the same name took over; stop this one
```

`definite` and `retriable` come from the one table in `dledger_proto.errors`. `retriable` is true
only where the same call may succeed later and a repeat does no harm:

    while True:
        try:
            result = producer.send(topic, body, key=key)
            break
        except ClientError as error:
            if not error.retriable:
                raise  # or handle it
            time.sleep(1)

After `UnknownOutcome` of a send it is false: a new `send` is a new message, and may store it twice.
The producer itself has repeated the send, with the same sequence, as long as its budget allowed;
such repeats are stored once, so first give sends a longer `timeout_ms`. Look for a message that
stays unknown (`Admin.lookup_key`, once the cluster answers again), or send it again where consumers
can tell a copy. Of other calls `retriable` is true where a second call changes nothing more: to
create a topic, to commit offsets without `reset`, to trim, to hold. It is false where a repeat
could undo what others did meanwhile: to change or delete a topic, to reset offsets, to release a
hold, to transfer the leadership, to lift a quarantine.
"""

from typing import Self

from dledger_proto.errors import MEANINGS, Code, DledgerError


class ClientError(DledgerError):
    """Base of all errors about a cluster that this package raises."""

    def again(self) -> Self:
        """Return a copy without traceback, so that each waiter of one batch raises its own."""
        copy = type(self)(self.code, self.detail, hint=self.hint, repeatable=self.repeatable)
        copy.__cause__ = self.__cause__
        return copy


class UnknownOutcome(ClientError):
    """The write may or may not be stored. Not definite; retriable where a repeat does no harm.

    That is never so for a send: its repeat may store it twice.
    """


class ServerBug(ClientError):
    """A member met a bug of its own (INTERNAL). Not definite, not retriable."""


class NotStored(ClientError):
    """Definite: the write is not stored and will not be, the call changed nothing."""


class CorruptData(NotStored):
    """Bytes do not match their checksum: a batch that was refused, or read from every member."""


class UnreadableData(CorruptData):
    """A batch is as its producer sent it, and cannot be decoded; so are all copies of it."""


class Unavailable(NotStored):
    """Nobody could take the call now: no leader, not formed, draining, unreachable. Retriable."""


class DeadlineExpired(Unavailable):
    """The time budget was over before anybody could take the call (NOT_PROPOSED)."""


class Overloaded(NotStored):
    """A bound on waiting work, in flight batches or disk space is reached. Retriable, later."""


class BufferFull(Overloaded):
    """This producer's own buffer is full (BUSY). Wait with `wait_for_room`, then repeat."""


class MessageIllegal(NotStored):
    """A field of the message breaks a rule; the text names field, value and limit."""


class MessageTooLarge(MessageIllegal):
    """The message is above a size limit; the text names it."""


class InvalidRequest(NotStored):
    """An argument is wrong, not known to the cluster, not implemented or switched off."""


class TopicNotFound(NotStored):
    """No such topic, and it was not created by itself."""


class TopicExists(NotStored):
    """A topic of this name exists with another configuration."""


class TooManyTopics(NotStored):
    """The cluster has as many topics as it may have; the text names the count and the limit."""


class QueueNotFound(NotStored):
    """The topic has no such queue."""


class NoPermission(NotStored):
    """The topic does not permit reading, or writing; or the user may not."""


class Unauthenticated(NotStored):
    """No user is named, its secret is wrong, or the user is gone or disabled."""


class NothingFound(NotStored):
    """Nothing is stored under this key, id or offset."""


class OffsetOutOfRange(NotStored):
    """The offset is below the queue's minimum or above its maximum."""


class OffsetBehind(NotStored):
    """The committed offset is higher; only an explicit reset goes back."""


class Held(NotStored):
    """A hold keeps this part of the log, or there are too many of them; the text says which."""


class ConsumerFenced(NotStored):
    """This consumer does not own the queue any more: another one does, or its session ended."""


class OffsetWasReset(NotStored):
    """Somebody reset the offset of the queue meanwhile; what was read before is not committed."""


class ConsumerGroupNotFound(NotStored):
    """No such consumer group, and it was not created by itself."""


class ConsumerGroupExists(NotStored):
    """A consumer group of this name exists with other settings."""


class ConsumerConflict(NotStored):
    """The consumer does not fit the others of its group: topics, order or their number differ."""


class UserNotFound(NotStored):
    """No such user."""


class UserExists(NotStored):
    """A user of this name exists and is another."""


class ClientClosed(NotStored):
    """You closed this client; what was waiting was not sent (CLOSED). A new one is needed."""


class ProducerRejected(NotStored):
    """The cluster does not know this producer or its sequence, also after it registered again."""


class ProducerFenced(ProducerRejected):
    """A newer producer of the same name took over (STALE_EPOCH). Close this one."""


_CLASSES: dict[Code, type[ClientError]] = {
    Code.NOT_LEADER: Unavailable,
    Code.NO_LEADER: Unavailable,
    Code.WRONG_GROUP: Unavailable,
    Code.BUSY: Overloaded,
    Code.SHUTTING_DOWN: Unavailable,
    Code.NOT_FORMED: Unavailable,
    Code.DISK_FULL: Overloaded,
    Code.NOT_PROPOSED: DeadlineExpired,
    Code.STORAGE_FAILED: Unavailable,
    Code.HEAD_TRIMMED: OffsetOutOfRange,
    Code.UNAVAILABLE: Unavailable,
    Code.UNKNOWN_OUTCOME: UnknownOutcome,
    Code.INVALID_ARGUMENT: InvalidRequest,
    Code.CORRUPT_BATCH: CorruptData,
    Code.UNREADABLE_BATCH: UnreadableData,
    Code.UNSUPPORTED_FORMAT: InvalidRequest,
    Code.MESSAGE_ILLEGAL: MessageIllegal,
    Code.MESSAGE_TOO_LARGE: MessageTooLarge,
    Code.TOPIC_NOT_FOUND: TopicNotFound,
    Code.TOPIC_EXISTS: TopicExists,
    Code.QUEUE_NOT_FOUND: QueueNotFound,
    Code.NO_PERMISSION: NoPermission,
    Code.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    Code.OFFSET_BEHIND: OffsetBehind,
    Code.NOT_FOUND: NothingFound,
    Code.WRONG_CLUSTER: InvalidRequest,
    Code.UNIMPLEMENTED: InvalidRequest,
    Code.STALE_LAYOUT: Unavailable,
    Code.HELD: Held,
    Code.TOO_MANY_HOLDS: Held,
    Code.TOO_MANY_TOPICS: TooManyTopics,
    Code.STALE_CREATION: InvalidRequest,
    Code.CLOSED: ClientClosed,
    Code.FENCED: ConsumerFenced,
    Code.LEASED: Overloaded,
    Code.GROUP_PAUSED: Overloaded,
    Code.OFFSET_RESET: OffsetWasReset,
    Code.TOO_MANY_RANGES: Overloaded,
    Code.CONSUMER_GROUP_NOT_FOUND: ConsumerGroupNotFound,
    Code.CONSUMER_GROUP_EXISTS: ConsumerGroupExists,
    Code.SUBSCRIPTION_CONFLICT: ConsumerConflict,
    Code.ORDER_CONFLICT: ConsumerConflict,
    Code.TOO_MANY_CONSUMERS: ConsumerConflict,
    Code.SESSION_ENDED: ConsumerFenced,
    Code.TOO_MANY_TIMERS: Overloaded,
    Code.UNAUTHENTICATED: Unauthenticated,
    Code.USER_NOT_FOUND: UserNotFound,
    Code.USER_EXISTS: UserExists,
    Code.UNKNOWN_PRODUCER: ProducerRejected,
    Code.STALE_EPOCH: ProducerFenced,
    Code.SEQUENCE_GAP: ProducerRejected,
    Code.DUPLICATE: ProducerRejected,
    Code.TOO_MANY_IN_FLIGHT: Overloaded,
    Code.INTERNAL: ServerBug,
}

assert set(_CLASSES) == set(Code) - {Code.OK}, "every code but OK has a class"
assert all(
    MEANINGS[code].definite == issubclass(kind, NotStored) for code, kind in _CLASSES.items()
), "NotStored is the definite branch"


def error_of(
    code: Code, detail: str = "", *, hint: str = "", repeatable: bool = False
) -> ClientError:
    """Return the exception of a code, unraised; `repeatable`: the call may be done twice."""
    return _CLASSES[code](code, detail, hint=hint, repeatable=repeatable)


def invalid(detail: str) -> ClientError:
    """Return INVALID_ARGUMENT, unraised; `detail` names argument, value and limit."""
    return error_of(Code.INVALID_ARGUMENT, detail)


def illegal(detail: str) -> ClientError:
    """Return MESSAGE_ILLEGAL, unraised; `detail` names field, value and limit."""
    return error_of(Code.MESSAGE_ILLEGAL, detail)


def client_error(error: DledgerError) -> ClientError:
    """Return `error` as an exception of this package's tree, with the original as its cause."""
    if isinstance(error, ClientError):
        return error
    translated = error_of(error.code, error.detail, hint=error.hint, repeatable=error.repeatable)
    translated.__cause__ = error
    return translated


def code_of(number: int) -> Code:
    """Return the code of a wire number; one from a newer version counts as UNKNOWN_OUTCOME.

    Of a code that is not known nothing is known, so it must not count as definite.
    """
    try:
        return Code(number)
    except ValueError:
        return Code.UNKNOWN_OUTCOME
