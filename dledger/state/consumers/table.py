"""Who is in a consumer group, and who has which queue: the rows, and their place in memory.

Owns: the rows of tables 42 to 44, and finding them. Not: the rules by which commands change them
(`granting.py`, `membership.py`). The values are the fields of the classes below, written as
commands are (`commands/codec.py`).

    42 consumer group id, consumer, UTF-8       -> Consumer
    43 consumer group id, topic_id, queue u32   -> Grant
    44 consumer group id                        -> Epochs

A group is read into memory when it is first asked for. What the tables return is sorted: an order
of insertion differs between a member that ran on and one that was restarted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dledger.state.commands.codec import Body, Int64, Record, UInt32, UInt64
from dledger.state.tables import KEY_U32, PREFIX, Table, Writer, after, rows_in

ID_SIZE: Final = 16


class Subscribed(NamedTuple):
    """What a consumer group reads: a topic, or all topics whose whole name matches a pattern."""

    topic: str
    pattern: bool = False

    def describe(self) -> str:
        """Return one word."""
        return f"/{self.topic}/" if self.pattern else self.topic


class QueueKey(NamedTuple):
    """A queue of any broker group."""

    topic_id: bytes
    queue: UInt32

    def describe(self) -> str:
        """Return one word."""
        return f"{self.topic_id.hex()}/{self.queue}"


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer group member that has a session."""

    joined: UInt64
    """Index of the entry of its last Join. It names the session."""
    epoch: UInt64
    """Index of the entry that last changed what it holds, or has to give back."""
    instance: str
    """Name of a static consumer, which nothing moves away from while it restarts; or empty."""
    client: str
    room: str
    wanted: tuple[QueueKey, ...]
    """With the strategy `config`: the queues that it takes."""

    def place(self, consumer: str) -> str:
        """Return the name by which strategies sort: a static consumer keeps it when it restarts."""
        return self.instance or consumer


@dataclass(frozen=True, slots=True)
class Grant:
    """Where a queue stands. It goes to its target as soon as nobody holds it."""

    target: str
    """Who should have it; empty: nobody."""
    holder: str
    """Who has it; empty: nobody."""
    epoch: UInt64
    """Of the grant to the holder."""
    since_ms: Int64
    """Leader's stamp of the last change."""

    @property
    def is_revoked(self) -> bool:
        """True: the holder has to give it back."""
        return self.holder != self.target


@dataclass(frozen=True, slots=True)
class Epochs:
    """The epochs of a consumer group, and what its consumers agree on."""

    group: UInt64 = 0
    """Grows when a consumer comes, goes, or wants something else."""
    assignment: UInt64 = 0
    """The group epoch whose assignment is stored."""
    granted: UInt64 = 0
    """The highest epoch of any grant."""
    strategy: str = ""
    """That the consumers ask for; empty: that of the group."""
    subscriptions: tuple[Subscribed, ...] = ()
    since_ms: tuple[Int64, ...] = ()
    """Of each subscription: the stamp of the Join that brought it; 0, or missing: not known."""


@dataclass(slots=True)
class ConsumerGroup:
    """The rows of one consumer group. Only `ConsumerTable` changes them."""

    id: bytes
    epochs: Epochs = field(default_factory=Epochs)
    consumers: dict[str, Consumer] = field(default_factory=dict[str, Consumer])
    grants: dict[QueueKey, Grant] = field(default_factory=dict[QueueKey, Grant])


CONSUMER_VALUE: Final = Record(Consumer)
GRANT_VALUE: Final = Record(Grant)
EPOCHS_VALUE: Final = Record(Epochs)
_NO_TIMES: Final = bytes(2)
"""What an older row of table 44 lacks at its end: an empty list."""


class ConsumerTable:
    """The consumers and grants of the consumer groups that this broker group coordinates."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._store = writer.store
        self._groups: dict[bytes, ConsumerGroup] = {}
        self._changed: dict[bytes, None] = {}

    def group(self, group_id: bytes) -> ConsumerGroup:
        """Return the rows of a consumer group; those of one that nobody joined are empty."""
        found = self._groups.get(group_id)
        if found is None:
            found = self._groups[group_id] = self._loaded(group_id)
        return found

    def ids(self) -> list[bytes]:
        """Return the consumer groups that somebody ever joined, and that are not deleted."""
        prefix = PREFIX[Table.GROUP_EPOCHS]
        return [key[1:] for key, _ in rows_in(self._store, prefix, after(prefix))]

    def take_changed(self) -> Sequence[bytes]:
        """Return the consumer groups that changed since the last call."""
        if not self._changed:
            return ()
        changed, self._changed = list(self._changed), {}
        return changed

    def forget(self, group_id: bytes) -> bool:
        """Forget a deleted consumer group; return whether it has rows, which the caller frees."""
        self._groups.pop(group_id, None)
        if self._store.get(PREFIX[Table.GROUP_EPOCHS] + group_id) is None:
            return False
        self._changed[group_id] = None
        return True

    def put_epochs(self, group: ConsumerGroup, epochs: Epochs) -> None:
        """Set the epochs of a group."""
        group.epochs = epochs
        self._changed[group.id] = None
        self._writer.put(PREFIX[Table.GROUP_EPOCHS] + group.id, _bytes(EPOCHS_VALUE, epochs))

    def put_consumer(self, group: ConsumerGroup, name: str, consumer: Consumer) -> None:
        """Set a consumer of a group."""
        group.consumers[name] = consumer
        self._changed[group.id] = None
        self._writer.put(_consumer_key(group.id, name), _bytes(CONSUMER_VALUE, consumer))

    def delete_consumer(self, group: ConsumerGroup, name: str) -> None:
        """Remove a consumer of a group."""
        del group.consumers[name]
        self._changed[group.id] = None
        self._writer.delete(_consumer_key(group.id, name))

    def put_grant(self, group: ConsumerGroup, key: QueueKey, grant: Grant | None) -> None:
        """Set where a queue stands; None: neither holder nor target."""
        self._changed[group.id] = None
        if grant is None:
            if group.grants.pop(key, None) is not None:
                self._writer.delete(_grant_key(group.id, key))
            return
        group.grants[key] = grant
        self._writer.put(_grant_key(group.id, key), _bytes(GRANT_VALUE, grant))

    def _loaded(self, group_id: bytes) -> ConsumerGroup:
        group = ConsumerGroup(group_id)
        value = self._store.get(PREFIX[Table.GROUP_EPOCHS] + group_id)
        if value is None:
            return group
        group.epochs = read_epochs(value)
        prefix = PREFIX[Table.CONSUMER] + group_id
        for key, value in rows_in(self._store, prefix, after(prefix)):
            group.consumers[key[len(prefix) :].decode()] = CONSUMER_VALUE.read(Body(value, 0))
        prefix = PREFIX[Table.GRANT] + group_id
        for key, value in rows_in(self._store, prefix, after(prefix)):
            at = len(prefix) + ID_SIZE
            queue = QueueKey(key[len(prefix) : at], KEY_U32.unpack_from(key, at)[0])
            group.grants[queue] = GRANT_VALUE.read(Body(value, 0))
        return group


def read_epochs(value: bytes) -> Epochs:
    """Return the value of a row of table 44, also of one that an older dledger wrote."""
    epochs: Epochs = EPOCHS_VALUE.read(Body(value + _NO_TIMES, 0))
    return epochs


def _consumer_key(group_id: bytes, name: str) -> bytes:
    return PREFIX[Table.CONSUMER] + group_id + name.encode()


def _grant_key(group_id: bytes, key: QueueKey) -> bytes:
    return PREFIX[Table.GRANT] + group_id + key.topic_id + KEY_U32.pack(key.queue)


def _bytes(record: Record, value: Any) -> bytes:
    parts: list[bytes] = []
    record.write(value, parts)
    return b"".join(parts)
