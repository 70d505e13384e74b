"""The closed list of replicated commands, and their codec.

Owns: what a command carries, its bytes, `describe`. Not: what it does (the tables' modules) and who
may propose it. One payload of a COMMANDS entry is one command:

    kind u8, version u8 (1), body; little-endian, in the order of the fields:
    ids 16 bytes; numbers u8 u32 u64 i64 as named below; text and lists behind a u16 count of
    bytes or items; a list's items one after the other.

A kind that is not known, another version, or a body that does not fit its kind raises
`UnknownCommand`: such a command is of a newer format level, and the member stops, for a skipped
command would make its state another than its peers' (D6). So does a kind that was withdrawn:
number 1 registered a producer without its life, and no release has written it.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final, cast

from dledger.state.values import LayoutPart, Topic, TopicType
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import QUEUES_PER_TOPIC_MAX

COMMAND_VERSION: Final = 1
LAST_SEQUENCES_MAX: Final = 4_096
"""Queues that a registration lists."""
HOLDS_PER_QUEUE_MAX: Final = 64
FORMAT_LEVEL_MAX: Final = 1
"""The newest format level that this code understands."""


class UnknownCommand(Exception):
    """A committed command that this code does not know; the member stops."""


@dataclass(frozen=True, slots=True)
class RegisterProducer:
    """Give a life of a producer an epoch in this group, or find it again (D11)."""

    producer_id: bytes
    life_id: bytes
    """Drawn at random by each run of a producer; not all zero."""
    epoch: int = 0
    """0: the first of this life; else the one above what it holds, or what it takes over from."""


@dataclass(frozen=True, slots=True)
class ExpireProducers:
    """Count time in which a leader led, and forget producers that wrote nothing for so long."""

    elapsed_ms: int
    """By the leader's monotonic clock, since it last counted or began to lead."""
    expiry_ms: int


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Create a topic, in the control group. Whoever wants it draws the id at random."""

    topic_id: bytes
    name: str
    type: TopicType
    layout: tuple[LayoutPart, ...]
    read_queues: int
    permission: int
    known_index: int = 0
    """An index of this log that was applied before the id was first told to anybody."""


@dataclass(frozen=True, slots=True)
class ImportTopic:
    """Take over what the control group decided; older than what is known is refused."""

    topic: Topic
    control_id: bytes = bytes(16)
    """Drawn at random when that group formed: its indexes compare with each other only."""


@dataclass(frozen=True, slots=True)
class UpdateTopic:
    """Change a topic, in the control group. Empty or 0 leaves a field as it is.

    `layout`: of the queues that take messages from now on, through which they are numbered.
    """

    topic_id: bytes
    layout: tuple[LayoutPart, ...] = ()
    read_queues: int = 0
    permission: int = 0


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete a topic, in the control group."""

    topic_id: bytes


@dataclass(frozen=True, slots=True)
class ForgetTopics:
    """Free the rows of topics that were deleted long ago, some at a time."""

    kept_ms: int
    """Counted time for which a deleted topic is remembered."""
    known_index: int
    """All that the control group decided up to this index of its log is known here."""


@dataclass(frozen=True, slots=True)
class CommitOffset:
    """The next offset to consume of one queue."""

    topic_id: bytes
    queue: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Store a consumer group's offsets; each is taken or refused on its own."""

    consumer_group: str
    offsets: tuple[CommitOffset, ...]
    reset: bool = False
    """True: may go back (I14)."""
    member_id: str = ""
    generation: int = 0
    """With `member_id`: who commits; carried for fencing by group membership."""


@dataclass(frozen=True, slots=True)
class Trim:
    """Raise a queue's minimum offset."""

    topic_id: bytes
    queue: int
    offset: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep a queue from `offset` on, until a leader time, for an owner."""

    owner: str
    topic_id: bytes
    queue: int
    offset: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseHold:
    """End a hold."""

    owner: str
    topic_id: bytes
    queue: int


@dataclass(frozen=True, slots=True)
class SetFormatLevel:
    """Allow commands up to this level."""

    level: int


Command = (
    RegisterProducer
    | ExpireProducers
    | CreateTopic
    | ImportTopic
    | UpdateTopic
    | DeleteTopic
    | ForgetTopics
    | CommitOffsets
    | Trim
    | Hold
    | ReleaseHold
    | SetFormatLevel
)

# Numbers are in the log and never reused; gone are 1, 3 to 5 (layouts without closed queues) and
# 14 (an import that named no control group).
KINDS: Final[dict[type[Command], int]] = {
    ExpireProducers: 2,
    DeleteTopic: 6,
    CommitOffsets: 7,
    Trim: 8,
    Hold: 9,
    ReleaseHold: 10,
    SetFormatLevel: 11,
    RegisterProducer: 12,
    CreateTopic: 13,
    UpdateTopic: 15,
    ForgetTopics: 16,
    ImportTopic: 17,
}


def frees_space(command: Command) -> bool:
    """Tell whether a command lets go of what is stored: it is taken although the disk is low."""
    if isinstance(command, ImportTopic):
        return command.topic.deleted
    return isinstance(command, DeleteTopic | ForgetTopics | Trim | ReleaseHold)


def rows_read_max(command: Command) -> int:
    """Return about how many rows apply reads for a command, at most."""
    match command:
        case RegisterProducer():
            return LAST_SEQUENCES_MAX
        case CommitOffsets():
            return 2 * len(command.offsets)
        case Trim() | Hold():
            return HOLDS_PER_QUEUE_MAX
        case DeleteTopic() | ImportTopic():
            return QUEUES_PER_TOPIC_MAX
        case _:
            return 1


ID_SIZE: Final = 16
TEXT_SIZE_MAX: Final = 0xFFFF
LIST_ITEMS_MAX: Final = 0xFFFF
_U8: Final = struct.Struct("<B")
_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_I64: Final = struct.Struct("<q")


class _Encoder:
    """Collects the fields of a body."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def identity(self, name: str, value: bytes) -> None:
        if len(value) != ID_SIZE:
            raise _misuse(f"{name} has {len(value)} bytes, an id has {ID_SIZE}")
        self.parts.append(value)

    def number(self, form: struct.Struct, name: str, value: int) -> None:
        try:
            self.parts.append(form.pack(value))
        except struct.error:
            signed = form.format[-1:].islower()
            least = -(1 << 8 * form.size - 1) if signed else 0
            most = least + (1 << 8 * form.size) - 1
            raise _misuse(f"{name} {value}, must be {least} to {most}") from None

    def text(self, name: str, value: str) -> None:
        data = value.encode()
        if len(data) > TEXT_SIZE_MAX:
            raise _misuse(f"{name} has {len(data)} bytes, at most {TEXT_SIZE_MAX}")
        self.parts += (_U16.pack(len(data)), data)

    def count(self, name: str, value: int) -> None:
        if value > LIST_ITEMS_MAX:
            raise _misuse(f"{name} has {value} items, at most {LIST_ITEMS_MAX}")
        self.parts.append(_U16.pack(value))

    def layout(self, layout: tuple[LayoutPart, ...]) -> None:
        self.count("layout", len(layout))
        for part in layout:
            self.text("layout.group", part.group)
            self.number(_U32, "layout.queues", part.queues)


def _misuse(sentence: str) -> DledgerError:
    return DledgerError(Code.INVALID_ARGUMENT, sentence)


class _Decoder:
    """Takes the fields of a body one by one; any misfit is a ValueError or struct.error."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def take(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        if len(data) != size:
            raise ValueError(f"ends at {len(self._data)}, {size} bytes wanted at {self._at}")
        self._at += size
        return data

    def number(self, form: struct.Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def flag(self) -> bool:
        value = self.number(_U8)
        if value > 1:
            raise ValueError(f"flag {value} at {self._at - 1}")
        return value == 1

    def text(self) -> str:
        return self.take(self.number(_U16)).decode()

    def layout(self) -> tuple[LayoutPart, ...]:
        return tuple(LayoutPart(self.text(), self.number(_U32)) for _ in range(self.number(_U16)))

    def finish(self) -> None:
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes are left over")


def encode(command: Command) -> bytes:
    """Return the payload of a command; INVALID_ARGUMENT names a field that its form cannot hold."""
    out = _Encoder()
    match command:
        case RegisterProducer():
            out.identity("producer_id", command.producer_id)
            out.identity("life_id", command.life_id)
            out.number(_U32, "epoch", command.epoch)
        case ExpireProducers():
            out.number(_I64, "elapsed_ms", command.elapsed_ms)
            out.number(_I64, "expiry_ms", command.expiry_ms)
        case CreateTopic():
            out.identity("topic_id", command.topic_id)
            out.text("name", command.name)
            out.number(_U8, "type", command.type)
            out.layout(command.layout)
            out.number(_U32, "read_queues", command.read_queues)
            out.number(_U8, "permission", command.permission)
            out.number(_U64, "known_index", command.known_index)
        case ImportTopic():
            _encode_topic(out, command.topic)
            out.identity("control_id", command.control_id)
        case UpdateTopic():
            out.identity("topic_id", command.topic_id)
            out.layout(command.layout)
            out.number(_U32, "read_queues", command.read_queues)
            out.number(_U8, "permission", command.permission)
        case DeleteTopic():
            out.identity("topic_id", command.topic_id)
        case ForgetTopics():
            out.number(_I64, "kept_ms", command.kept_ms)
            out.number(_U64, "known_index", command.known_index)
        case CommitOffsets():
            _encode_offsets(out, command)
        case Trim():
            _encode_queue(out, command.topic_id, command.queue)
            out.number(_I64, "offset", command.offset)
        case Hold():
            out.text("owner", command.owner)
            _encode_queue(out, command.topic_id, command.queue)
            out.number(_I64, "offset", command.offset)
            out.number(_I64, "until_ms", command.until_ms)
        case ReleaseHold():
            out.text("owner", command.owner)
            _encode_queue(out, command.topic_id, command.queue)
        case SetFormatLevel():
            out.number(_U32, "level", command.level)
    return b"".join((bytes((KINDS[type(command)], COMMAND_VERSION)), *out.parts))


def _encode_queue(out: _Encoder, topic_id: bytes, queue: int) -> None:
    out.identity("topic_id", topic_id)
    out.number(_U32, "queue", queue)


def _encode_topic(out: _Encoder, topic: Topic) -> None:
    out.identity("topic_id", topic.topic_id)
    out.text("name", topic.name)
    out.number(_U8, "type", topic.type)
    out.number(_U32, "layout_version", topic.layout_version)
    out.layout(topic.layout)
    out.number(_U32, "write_queues", topic.write_queues)
    out.number(_U32, "read_queues", topic.read_queues)
    out.number(_U8, "permission", topic.permission)
    out.number(_U64, "control_index", topic.control_index)
    out.number(_U8, "deleted", topic.deleted)


def _encode_offsets(out: _Encoder, command: CommitOffsets) -> None:
    out.text("consumer_group", command.consumer_group)
    out.number(_U8, "reset", command.reset)
    out.text("member_id", command.member_id)
    out.number(_U64, "generation", command.generation)
    out.count("offsets", len(command.offsets))
    for item in command.offsets:
        _encode_queue(out, item.topic_id, item.queue)
        out.number(_I64, "offset", item.offset)
        out.text("metadata", item.metadata)


def _decode_topic(body: _Decoder) -> Topic:
    return Topic(
        body.take(ID_SIZE), body.text(), TopicType(body.number(_U8)), body.number(_U32),
        body.layout(), body.number(_U32), body.number(_U32), body.number(_U8), body.number(_U64),
        body.flag(),
    )  # fmt: skip


def _decode_offsets(body: _Decoder) -> CommitOffsets:
    consumer_group, reset = body.text(), body.flag()
    member_id, generation = body.text(), body.number(_U64)
    offsets = tuple(
        CommitOffset(body.take(ID_SIZE), body.number(_U32), body.number(_I64), body.text())
        for _ in range(body.number(_U16))
    )
    return CommitOffsets(consumer_group, offsets, reset, member_id, generation)


def _decode_level(body: _Decoder) -> SetFormatLevel:
    level = body.number(_U32)
    if level > FORMAT_LEVEL_MAX:
        raise ValueError(f"format level {level}, {FORMAT_LEVEL_MAX} is known here")
    return SetFormatLevel(level)


_DECODERS: Final[dict[int, Callable[[_Decoder], Command]]] = {
    2: lambda body: ExpireProducers(body.number(_I64), body.number(_I64)),
    6: lambda body: DeleteTopic(body.take(ID_SIZE)),
    7: _decode_offsets,
    8: lambda body: Trim(body.take(ID_SIZE), body.number(_U32), body.number(_I64)),
    9: lambda body: Hold(
        body.text(), body.take(ID_SIZE), body.number(_U32), body.number(_I64), body.number(_I64)
    ),
    10: lambda body: ReleaseHold(body.text(), body.take(ID_SIZE), body.number(_U32)),
    11: _decode_level,
    12: lambda body: RegisterProducer(body.take(ID_SIZE), body.take(ID_SIZE), body.number(_U32)),
    13: lambda body: CreateTopic(
        body.take(ID_SIZE), body.text(), TopicType(body.number(_U8)), body.layout(),
        body.number(_U32), body.number(_U8), body.number(_U64),
    ),
    15: lambda body: UpdateTopic(
        body.take(ID_SIZE), body.layout(), body.number(_U32), body.number(_U8)
    ),
    16: lambda body: ForgetTopics(body.number(_I64), body.number(_U64)),
    17: lambda body: ImportTopic(_decode_topic(body), body.take(ID_SIZE)),
}  # fmt: skip

assert set(_DECODERS) == set(KINDS.values()), "every command is decoded"


def decode(data: bytes | memoryview) -> Command:
    """Return the command of a payload; `UnknownCommand` when it is none of this list."""
    data = bytes(data)
    head = data[:2].hex()
    if len(data) < 2 or data[1] != COMMAND_VERSION or data[0] not in _DECODERS:
        raise UnknownCommand(f"command {head}: not known at format level {FORMAT_LEVEL_MAX}")
    body = _Decoder(data, 2)
    try:
        command = _DECODERS[data[0]](body)
        body.finish()
    except (ValueError, struct.error) as error:
        raise UnknownCommand(f"command {head}: {error}") from error
    return command


def describe(command: Command) -> str:
    """Return one stable line for logs and tests."""
    shown = [f"{field.name}={_shown(getattr(command, field.name))}" for field in fields(command)]
    return " ".join((type(command).__name__, *shown))


def _shown(value: object) -> str:
    match value:
        case bytes():
            return value.hex()
        case LayoutPart():
            return f"{value.group}:{value.queues}"
        case CommitOffset():
            return f"{value.topic_id.hex()}/{value.queue}@{value.offset}"
        case tuple():
            return ",".join(map(_shown, cast("tuple[object, ...]", value))) or "-"
        case TopicType():
            return value.name
        case Topic():
            inner = (
                f"{field.name}={_shown(getattr(value, field.name))}" for field in fields(value)
            )
            return f"({' '.join(inner)})"
        case _:
            return str(value)
