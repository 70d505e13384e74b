"""The bytes of messages between the members of a group, `DLP1`: encode and decode. Pure.

Owns: the binary form of the messages that `messages.py` lists. Does not own how bytes travel
(`links/peer_link.py`), nor where an append request gets its entries from (`loading.py`).
Little-endian. Every message begins with

      0  4  magic "DLP1"          4  1  version (1)         5  1  type: `TYPE` of its class
      6  2  flags (by type)       8  8  session: of the sender's process, random, never 0
     16  8  sequence: grows by 1 with each message of this session to this receiver

and goes on with the fields of its type, below; an append request ends with entry frames
(`DLE1`) exactly as they lie in the log, a hello with names and a genesis payload. All numbers are
u64 unless said otherwise; terms, indexes and positions are below 2**63. Eight types hold numbers
alone, and at most one truth value, which is bit 0 of the flags (`_PLAIN`): their numbers follow in
the order of the fields of their class in `messages.py`. So the order of these fields is a format.

`decode` raises ValueError for all bytes that are not exactly one whole message.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dledger.raft.wire.messages import (
    AppendAnswer,
    AppendRequest,
    BarrierAnswer,
    BarrierRequest,
    Hello,
    Message,
    PreVote,
    PreVoteAnswer,
    TermNotice,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
)
from dledger.types import Buffer, DiskRoom
from dledger_proto.limits import FRAME_SIZE_MAX, GROUP_NAME_LENGTH_MAX, MEMBERS_MAX

MAGIC: Final = b"DLP1"
VERSION: Final = 1
GENESIS_SIZE_MAX: Final = 16 * 1024
_HEAD = struct.Struct("<4sBBHQQ")
_NUMBER_MAX: Final = 1 << 63

# Encoding.

_HELLO = struct.Struct("<16s16s16sQQQQIHHHBB")
_APPEND = struct.Struct("<QQQQQQqq")
_APPEND_ANSWER = struct.Struct("<QQQQQQq")
_NO_ID = bytes(16)


def _plain(kind: type[Message], flag: str = "") -> tuple[struct.Struct, Sequence[str], str]:
    """Return the form of a message of numbers; `flag` names the field that is bit 0 of the flags.

    The numbers are the other fields, in the order of the class.
    """
    fields: tuple[str, ...] = kind.__match_args__
    names = [name for name in fields if name != flag]
    return struct.Struct(f"<{len(names)}Q"), names, flag


_PLAIN: Final[Mapping[type[Message], tuple[struct.Struct, Sequence[str], str]]] = {
    PreVote: _plain(PreVote),
    PreVoteAnswer: _plain(PreVoteAnswer, "granted"),
    VoteRequest: _plain(VoteRequest),
    VoteAnswer: _plain(VoteAnswer, "granted"),
    TermNotice: _plain(TermNotice),
    TimeoutNow: _plain(TimeoutNow),
    BarrierRequest: _plain(BarrierRequest, "quarantined"),
    BarrierAnswer: _plain(BarrierAnswer, "confirmed"),
}


def encode(message: Message) -> list[Buffer]:
    """Return the message as buffers to be sent one after the other.

    ValueError for an append request whose entries are not loaded (`loading.load`).
    """
    flags, parts = _body(message)
    head = _HEAD.pack(MAGIC, VERSION, message.TYPE, flags, message.session, message.sequence)
    return [head + parts[0], *parts[1:]]


def _encode_hello(message: Hello) -> tuple[int, list[Buffer]]:
    names = [name.encode() for name in (message.cluster, message.group, message.member)]
    flags = message.quarantined | message.lifted << 1 | message.forgotten << 2
    parts: list[bytes] = [
        _HELLO.pack(
            message.incarnation,
            message.group_id or _NO_ID,
            message.recorded or _NO_ID,
            message.term,
            message.echo_session,
            message.state_number,
            message.echo_state,
            len(message.genesis),
            *(len(name) for name in names),
            len(message.met),
            0,
        ),
        *names,
    ]
    for name, incarnation in sorted(message.met.items()):
        parts += (bytes((len(name.encode()),)), name.encode(), incarnation)
    parts.append(message.genesis)
    return flags, [b"".join(parts)]


def _encode_append(message: AppendRequest) -> tuple[int, list[Buffer]]:
    head = _APPEND.pack(
        message.number,
        message.term,
        message.prev_index,
        message.prev_term,
        message.commit_index,
        message.trim_floor,
        message.wall_ms,
        message.jump_ms,
    )
    flags = 0 if message.answer else 1
    if message.payload is not None:
        if message.payload.buffers is None:
            raise ValueError(f"{message.describe()}: its entries are not loaded")
        return flags, [head, *message.payload.buffers]
    return flags, [head] if message.frames is None else [head, message.frames]


def _encode_append_answer(message: AppendAnswer) -> tuple[int, list[Buffer]]:
    flags = (
        message.matched
        | message.quarantined << 1
        | message.disk_room << 2
        | message.disk_hangs << 4
        | message.unsynced << 5
    )
    return flags, [
        _APPEND_ANSWER.pack(
            message.number,
            message.term,
            message.own_term,
            message.match_index,
            message.hint_index,
            message.hint_term,
            message.wall_ms,
        )
    ]


def _body(message: Message) -> tuple[int, list[Buffer]]:
    """Return the flags and the bytes behind the head."""
    match message:
        case AppendRequest():
            return _encode_append(message)
        case AppendAnswer():
            return _encode_append_answer(message)
        case Hello():
            return _encode_hello(message)
        case _:
            shape, names, flag = _PLAIN[type(message)]
            numbers = shape.pack(*[getattr(message, name) for name in names])
            return bool(flag and getattr(message, flag)), [numbers]


# Decoding.


def decode(buffer: Buffer) -> Message:
    """Return the one message that `buffer` holds; the frames of an append are views of it."""
    size = len(buffer)
    if not _HEAD.size <= size <= FRAME_SIZE_MAX:
        raise ValueError(f"message of {size} bytes, must be in {_HEAD.size}..{FRAME_SIZE_MAX}")
    magic, version, kind, flags, session, sequence = _HEAD.unpack_from(buffer)
    if magic != MAGIC or version != VERSION:
        raise ValueError(f"message magic {magic!r} version {version}, known {MAGIC!r} {VERSION}")
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ValueError(f"message type {kind} is not known")
    body = memoryview(buffer)[_HEAD.size :]
    try:
        message = decoder(body, flags)
    except struct.error as error:
        raise ValueError(f"message type {kind}: {error}") from error
    message.session = session
    message.sequence = sequence
    return message


def _numbers(shape: struct.Struct, body: memoryview) -> Sequence[int]:
    """Unpack a body that holds exactly these numbers."""
    if len(body) != shape.size:
        raise ValueError(f"body of {len(body)} bytes, must be {shape.size}")
    return _checked(shape.unpack(body))


def _checked(numbers: tuple[int, ...]) -> Sequence[int]:
    for number in numbers:
        if number >= _NUMBER_MAX:
            raise ValueError(f"number {number} is not below 2**63")
    return numbers


def _decode_hello(body: memoryview, flags: int) -> Hello:
    fields = _HELLO.unpack_from(body)
    incarnation, group_id, recorded, term, echo_session, state, echo_state = fields[:7]
    genesis_size, *name_sizes, met_count, reserved = fields[7:]
    if genesis_size > GENESIS_SIZE_MAX or met_count > MEMBERS_MAX or flags > 7 or reserved:
        raise ValueError(f"hello with {met_count} members, genesis of {genesis_size} bytes")
    _checked((term, state, echo_state))
    at = _HELLO.size
    names: list[str] = []
    for size in name_sizes:
        names.append(_name(body, at, size))
        at += size
    met: dict[str, bytes] = {}
    for _ in range(met_count):
        (size,) = struct.unpack_from("<B", body, at)
        name = _name(body, at + 1, size)
        at += 1 + size
        (met[name],) = struct.unpack_from("<16s", body, at)
        at += 16
    genesis = bytes(body[at:])
    if len(genesis) != genesis_size:
        raise ValueError(f"hello ends with {len(genesis)} bytes, genesis has {genesis_size}")
    return Hello(
        cluster=names[0],
        group=names[1],
        member=names[2],
        incarnation=incarnation,
        state_number=state,
        term=term,
        group_id=b"" if group_id == _NO_ID else group_id,
        quarantined=bool(flags & 1),
        lifted=bool(flags & 2),
        recorded=b"" if recorded == _NO_ID else recorded,
        forgotten=bool(flags & 4),
        echo_session=echo_session,
        echo_state=echo_state,
        met=met,
        genesis=genesis,
    )


def _name(body: memoryview, at: int, size: int) -> str:
    data = bytes(body[at : at + size])
    if not 1 <= size <= GROUP_NAME_LENGTH_MAX or len(data) != size:
        raise ValueError(f"name of {size} bytes, must be in 1..{GROUP_NAME_LENGTH_MAX}")
    return data.decode()  # UnicodeDecodeError is a ValueError


def _decode_append(body: memoryview, flags: int) -> AppendRequest:
    number, term, prev_index, prev_term, commit, floor, wall_ms, jump_ms = _checked(
        _APPEND.unpack_from(body)
    )
    frames = body[_APPEND.size :]
    return AppendRequest(
        number,
        term,
        prev_index,
        prev_term,
        commit,
        floor,
        wall_ms,
        jump_ms,
        answer=not flags & 1,
        frames=frames if len(frames) else None,
    )


def _decode_append_answer(body: memoryview, flags: int) -> AppendAnswer:
    number, term, own_term, match, hint, hint_term, wall_ms = _numbers(_APPEND_ANSWER, body)
    return AppendAnswer(
        number,
        term,
        own_term,
        bool(flags & 1),
        match,
        hint,
        hint_term,
        wall_ms,
        quarantined=bool(flags & 2),
        disk_room=DiskRoom(flags >> 2 & 3),
        disk_hangs=bool(flags & 16),
        unsynced=bool(flags & 32),
    )


def _plain_decoder(kind: type[Message]) -> Callable[[memoryview, int], Message]:
    shape, names, flag = _PLAIN[kind]

    def decode_it(body: memoryview, flags: int) -> Message:
        fields: dict[str, Any] = dict(zip(names, _numbers(shape, body), strict=True))
        if flag:
            fields[flag] = bool(flags & 1)
        return kind(**fields)

    return decode_it


_DECODERS: Final[Mapping[int, Callable[[memoryview, int], Message]]] = {
    Hello.TYPE: _decode_hello,
    AppendRequest.TYPE: _decode_append,
    AppendAnswer.TYPE: _decode_append_answer,
    **{kind.TYPE: _plain_decoder(kind) for kind in _PLAIN},
}
