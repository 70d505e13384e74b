"""The entry frame `DLE1` and the segment header `DLS1`: layout, encode, check, decode.

Owns: what the Raft log holds on disk and on the way to followers, segment names and headers, the
payload of the genesis entry. Not: where entries are written, and what to do about damage.
Little-endian. An entry is equal on every member but for its 12 local bytes at 56..68.

      0  4  magic "DLE1"
      4  4  header_crc: crc32c of bytes 8..56 and of bytes 72..header_size; identifies the entry
      8  4  size of the whole entry
     12  2  header_size: 72 + 8 * payload_count, at most 72 + 8 * ENTRY_PAYLOADS_MAX
     14  1  version: 1
     15  1  kind: 0 no-op, 1 batches, 2 commands, 3 genesis
     16  8  index, from 1
     24  8  term
     32  8  time_ms: the leader's stamp
     40  8  position: sum of the sizes of all entries before
     48  4  previous_crc: header_crc of the entry before (a chain); 0 before the first
     52  4  payload_count
     56  8  synced_position (local): what this member had synced when it wrote this entry
     64  4  local_crc (local): crc32c of the segment's salt, header_crc and synced_position
     68  4  reserved, 0
     72 ..  per payload: size u32, crc u32
     header_size ..  the payloads, one after the other

The crc of a batch (kind 1) is the batch's own crc field, which covers it from byte 8 on; the magic
in front is compared. The crc of any other payload is the crc32c of its bytes. So each byte of an
entry is under exactly one CRC, and the one over the header covers the CRCs of the payloads.

Later versions keep bytes 0..16 and the range of header_crc; of a segment header bytes 0..10. So a
reader tells a later version from damage.

A segment is a file `<base position, 20 digits>.log`: a header of 128 bytes, then entries; a
position lies at file offset 128 + position - base_position.

      0  4  magic "DLS1"
      4  4  crc32c of bytes 8..128
      8  2  version: 1                 10  6  reserved, 0
     16 16  group_id, all zero until the group has formed
     32  8  base_position              40  8  base_index: of the first entry
     48  8  previous_term              56  4  previous_crc: of the entry before the first; or 0, 0
     60  8  salt, random               68 60  reserved, 0

The genesis payload `DLG1`: magic, version u8, member_count u8, cluster_size u16, group_size u16,
group_id 16, cluster, group, then per member: name_size u16, name, incarnation 16.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from dledger_proto.limits import (
    ENTRY_PAYLOADS_MAX,
    ENTRY_SIZE_MAX,
    GROUP_NAME_LENGTH_MAX,
    MEMBERS_MAX,
)

ENTRY_MAGIC: Final = b"DLE1"
ENTRY_VERSION: Final = 1
ENTRY_HEADER_SIZE: Final = 72
"""Without the payload table."""
ENTRY_HEADER_SIZE_MAX: Final = ENTRY_HEADER_SIZE + 8 * ENTRY_PAYLOADS_MAX
KIND_NO_OP: Final = 0
KIND_BATCHES: Final = 1
KIND_COMMANDS: Final = 2
KIND_GENESIS: Final = 3
KIND_NAMES: Final = ("no-op", "batches", "commands", "genesis")

SEGMENT_MAGIC: Final = b"DLS1"
SEGMENT_VERSION: Final = 1
SEGMENT_HEADER_SIZE: Final = 128
SALT_SIZE: Final = 8
GROUP_ID_SIZE: Final = 16
INCARNATION_SIZE: Final = 16

_HEADER = struct.Struct("<4sIIHBBQQQQIIQII")
_LOCAL = struct.Struct("<QII")
_LOCAL_AT = 56
_SALTED = struct.Struct("<8sIQ")
_BATCH_START = struct.Struct("<4sI")
_BATCH_MAGIC = b"DLB1"
_SEGMENT = struct.Struct("<4sIH6x16sQQQI8s60x")
_GENESIS = struct.Struct("<4sBBHH16s")
_GENESIS_MAGIC = b"DLG1"
_SUFFIX = ".log"
_NAME_DIGITS = 20
assert _HEADER.size == ENTRY_HEADER_SIZE
assert _SEGMENT.size == SEGMENT_HEADER_SIZE
assert ENTRY_HEADER_SIZE_MAX < 1 << 16, "header_size is u16"

Buffer = bytes | bytearray | memoryview


class CorruptEntry(ValueError):
    """The bytes are not a sound entry, segment header or genesis payload; says why."""


class NewerEntry(CorruptEntry):
    """A sound entry or segment header that a later dledger wrote."""


class ShortEntry(CorruptEntry):
    """The buffer ends before the entry does: more bytes are needed, or the tail is torn."""


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The fixed header of an entry, as drawn; without magic, version and reserved."""

    header_crc: int
    size: int
    header_size: int
    kind: int
    index: int
    term: int
    time_ms: int
    position: int
    previous_crc: int
    payload_count: int
    synced_position: int
    local_crc: int

    @property
    def end_position(self) -> int:
        """Position of the first byte behind the entry."""
        return self.position + self.size

    def describe(self) -> str:
        """Return one stable line for logs and tests."""
        return (
            f"entry {self.index} term={self.term} {KIND_NAMES[self.kind]}={self.payload_count} "
            f"position={self.position} size={self.size} time={self.time_ms} "
            f"crc={self.header_crc:08x} previous={self.previous_crc:08x}"
        )


class DecodedEntry(NamedTuple):
    """An entry taken apart. The payloads are views of the buffer it was decoded from."""

    header: EntryHeader
    payloads: list[memoryview]
    starts: list[int]
    """Position of the first byte of each payload."""


def parse_entry_header(buffer: Buffer, offset: int = 0) -> EntryHeader:
    """Return the header at `offset` after checking it with its payload table, the CRC included.

    The payloads need not be there. `ShortEntry`: the buffer ends within the header;
    `CorruptEntry`: it is no header; `NewerEntry`: it is a later version's. The local bytes are not
    checked (`check_local`).
    """
    available = len(buffer) - offset
    if available < ENTRY_HEADER_SIZE:
        raise ShortEntry(f"{available} bytes at {offset}, an entry header has {ENTRY_HEADER_SIZE}")
    magic, crc, size, header_size, version, *fields, reserved = _HEADER.unpack_from(buffer, offset)
    header = EntryHeader(crc, size, header_size, *fields)
    if magic != ENTRY_MAGIC:
        raise CorruptEntry(f"magic is {magic!r}, not {ENTRY_MAGIC!r}")
    if not ENTRY_HEADER_SIZE <= header_size <= ENTRY_HEADER_SIZE_MAX:
        raise CorruptEntry(
            f"header_size {header_size}, must be in {ENTRY_HEADER_SIZE}..{ENTRY_HEADER_SIZE_MAX}"
        )
    if not header_size <= size <= ENTRY_SIZE_MAX:
        raise CorruptEntry(f"size {size}, must be in {header_size}..{ENTRY_SIZE_MAX}")
    if available < header_size:
        raise ShortEntry(f"{available} bytes at {offset}, the entry's header has {header_size}")
    view = memoryview(buffer)
    found = crc32c(view[offset + 8 : offset + _LOCAL_AT])
    if header_size > ENTRY_HEADER_SIZE:
        found = crc32c(view[offset + ENTRY_HEADER_SIZE : offset + header_size], found)
    if crc != found:
        raise CorruptEntry(f"header_crc is {crc:08x}, the bytes have {found:08x}")
    if version != ENTRY_VERSION:
        raise NewerEntry(f"entry version {version}, this dledger knows {ENTRY_VERSION}")
    count = header.payload_count
    if header_size != ENTRY_HEADER_SIZE + 8 * count:
        raise CorruptEntry(f"header_size {header_size} for {count} payloads")
    if header.kind > KIND_GENESIS:
        raise CorruptEntry(f"kind {header.kind} is not known")
    if header.index == 0 or reserved:
        raise CorruptEntry(f"index {header.index} (from 1), reserved {reserved} (0)")
    parts_size = header_size + sum(payload_table(buffer, header, offset)[::2])
    if parts_size != size:
        raise CorruptEntry(f"size is {size}, header and payloads add up to {parts_size}")
    return header


def payload_table(buffer: Buffer, header: EntryHeader, offset: int = 0) -> tuple[int, ...]:
    """Return size, crc, size, crc, ... of the payloads of the entry at `offset`."""
    return struct.unpack_from(f"<{2 * header.payload_count}I", buffer, offset + ENTRY_HEADER_SIZE)


def frame_entry(
    kind: int,
    payloads: Sequence[Buffer],
    *,
    index: int,
    term: int,
    time_ms: int,
    position: int,
    previous_crc: int,
) -> tuple[bytes, int]:
    """Return (header, header_crc) of an entry; its bytes are the header and then the payloads.

    The local bytes are zero: `stamp_local` before writing. Batches have passed `check_batch`.
    ValueError for our own misuse: too many payloads, too large, a number out of range.
    """
    count = len(payloads)
    if count > ENTRY_PAYLOADS_MAX or not KIND_NO_OP <= kind <= KIND_GENESIS or index < 1:
        raise ValueError(f"kind {kind}, index {index}, {count} of {ENTRY_PAYLOADS_MAX} payloads")
    table: list[int] = []
    header_size = ENTRY_HEADER_SIZE + 8 * count
    size = header_size
    for payload in payloads:
        payload_size = len(payload)
        size += payload_size
        table += (payload_size, payload_crc(kind, payload))
    if size > ENTRY_SIZE_MAX:
        raise ValueError(f"entry of {size} bytes, at most {ENTRY_SIZE_MAX}")
    packed_table = struct.pack(f"<{2 * count}I", *table)
    header = bytearray(ENTRY_HEADER_SIZE)
    try:
        _HEADER.pack_into(
            header, 0, ENTRY_MAGIC, 0, size, header_size, ENTRY_VERSION, kind,
            index, term, time_ms, position, previous_crc, count, 0, 0, 0,
        )  # fmt: skip
    except struct.error as error:
        raise ValueError(
            f"index {index}, term {term}, time_ms {time_ms}, position {position} or "
            f"previous_crc {previous_crc} out of range"
        ) from error
    crc = crc32c(packed_table, crc32c(memoryview(header)[8:_LOCAL_AT]))
    header[4:8] = crc.to_bytes(4, "little")
    return bytes(header + packed_table), crc


def payload_crc(kind: int, payload: Buffer) -> int:
    """Return what the payload table says of a payload: a batch's own crc, crc32c of others."""
    if kind != KIND_BATCHES:
        return crc32c(payload)
    if len(payload) < _BATCH_START.size or payload[:4] != _BATCH_MAGIC:
        raise ValueError("a payload of an entry of batches is no batch")
    return int.from_bytes(payload[4:8], "little")


def stamp_local(header: Buffer, salt: bytes, synced_position: int) -> bytes:
    """Return the header (with or without what follows it) with this member's local bytes."""
    stamped = bytearray(header)
    local_crc = crc32c(_SALTED.pack(salt, int.from_bytes(stamped[4:8], "little"), synced_position))
    _LOCAL.pack_into(stamped, _LOCAL_AT, synced_position, local_crc, 0)
    return bytes(stamped)


def check_local(header: EntryHeader, salt: bytes) -> bool:
    """Tell whether the local bytes were written into the segment of this salt."""
    salted = _SALTED.pack(salt, header.header_crc, header.synced_position)
    return header.local_crc == crc32c(salted)


def decode_entry(buffer: Buffer, offset: int = 0, *, check_payloads: bool) -> DecodedEntry:
    """Return the entry at `offset`; with `check_payloads` each byte of it has passed a CRC.

    `ShortEntry`: the buffer ends within the entry; `CorruptEntry`: something does not fit.
    """
    header = parse_entry_header(buffer, offset)
    if len(buffer) - offset < header.size:
        raise ShortEntry(f"{len(buffer) - offset} bytes at {offset}, the entry has {header.size}")
    table = payload_table(buffer, header, offset)
    view = memoryview(buffer)
    payloads: list[memoryview] = []
    starts: list[int] = []
    at = offset + header.header_size
    base = header.position - offset
    for size in table[::2]:
        payloads.append(view[at : at + size])
        starts.append(base + at)
        at += size
    if check_payloads:
        for place, payload in enumerate(payloads):
            _check_payload(header.kind, payload, table[2 * place + 1], place)
    return DecodedEntry(header, payloads, starts)


def _check_payload(kind: int, payload: memoryview, expected: int, place: int) -> None:
    if kind == KIND_BATCHES:
        if len(payload) < _BATCH_START.size or _BATCH_START.unpack_from(payload) != (
            _BATCH_MAGIC,
            expected,
        ):
            raise CorruptEntry(f"payload {place} does not start as batch of crc {expected:08x}")
        payload = payload[_BATCH_START.size :]
    crc = crc32c(payload)
    if crc != expected:
        raise CorruptEntry(f"payload {place}: crc is {expected:08x}, the bytes have {crc:08x}")


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a segment file says of itself; see the layout above."""

    group_id: bytes
    base_position: int
    base_index: int
    previous_term: int
    previous_crc: int
    salt: bytes

    def encode(self) -> bytes:
        """Return the 128 bytes; ValueError for a field out of range."""
        if len(self.group_id) != GROUP_ID_SIZE or len(self.salt) != SALT_SIZE:
            raise ValueError(f"group_id {self.group_id!r} of 16, salt {self.salt!r} of 8 bytes")
        header = bytearray(SEGMENT_HEADER_SIZE)
        try:
            _SEGMENT.pack_into(
                header, 0, SEGMENT_MAGIC, 0, SEGMENT_VERSION, self.group_id, self.base_position,
                self.base_index, self.previous_term, self.previous_crc, self.salt,
            )  # fmt: skip
        except struct.error as error:
            raise ValueError(f"{self}: a number is out of range") from error
        header[4:8] = crc32c(memoryview(header)[8:]).to_bytes(4, "little")
        return bytes(header)


def parse_segment_header(buffer: Buffer) -> SegmentHeader:
    """Return the header at the start of a segment; CorruptEntry or a subclass when it is none."""
    if len(buffer) < SEGMENT_HEADER_SIZE:
        raise ShortEntry(f"{len(buffer)} bytes, a segment header has {SEGMENT_HEADER_SIZE}")
    magic, crc, version, *fields = _SEGMENT.unpack_from(buffer)
    if magic != SEGMENT_MAGIC:
        raise CorruptEntry(f"magic is {magic!r}, not {SEGMENT_MAGIC!r}")
    found = crc32c(memoryview(buffer)[8:SEGMENT_HEADER_SIZE])
    if crc != found:
        raise CorruptEntry(f"segment header crc is {crc:08x}, the bytes have {found:08x}")
    if version != SEGMENT_VERSION:
        raise NewerEntry(f"segment version {version}, this dledger knows {SEGMENT_VERSION}")
    return SegmentHeader(*fields)


def segment_name(position: int) -> str:
    """Return the file name of the segment that starts at `position`: 20 digits and ".log"."""
    if not 0 <= position < 1 << 64:
        raise ValueError(f"position {position}, must be u64")
    return f"{position:0{_NAME_DIGITS}d}{_SUFFIX}"


def parse_segment_name(name: str) -> int | None:
    """Return the base position that a file name says; None when it names no segment.

    Twenty digits can say more than a position has room for: such a file is none of ours.
    """
    digits = name.removesuffix(_SUFFIX)
    if digits == name or len(digits) != _NAME_DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    base_position = int(digits)
    return base_position if base_position < 1 << 64 else None


@dataclass(frozen=True, slots=True)
class Genesis:
    """The first entry of a group: who it is, and who its members are (D18)."""

    cluster: str
    group: str
    group_id: bytes
    members: tuple[tuple[str, bytes], ...]
    """Member id and incarnation (16 bytes), in the order of the configuration."""


def encode_genesis(
    cluster: str, group: str, group_id: bytes, members: Sequence[tuple[str, bytes]]
) -> bytes:
    """Return the genesis payload; ValueError for a name or an id out of its limit."""
    names = [name.encode() for name in (cluster, group, *(member for member, _ in members))]
    if len(group_id) != GROUP_ID_SIZE or not 1 <= len(members) <= MEMBERS_MAX:
        raise ValueError(f"group_id {group_id!r} of 16 bytes, {len(members)} of 1..{MEMBERS_MAX}")
    if not all(1 <= len(name) <= GROUP_NAME_LENGTH_MAX for name in names):
        raise ValueError(f"names {names}: each has 1 to {GROUP_NAME_LENGTH_MAX} bytes")
    parts = [
        _GENESIS.pack(_GENESIS_MAGIC, 1, len(members), len(names[0]), len(names[1]), group_id),
        *names[:2],
    ]
    for name, (_, incarnation) in zip(names[2:], members, strict=True):
        if len(incarnation) != INCARNATION_SIZE:
            raise ValueError(f"incarnation {incarnation!r} of {name!r}: must be 16 bytes")
        parts += (len(name).to_bytes(2, "little"), name, incarnation)
    return b"".join(parts)


def parse_genesis(payload: Buffer) -> Genesis:
    """Return what a genesis payload says; CorruptEntry when it is none."""
    data = bytes(payload)
    try:
        magic, version, member_count, cluster_size, group_size, group_id = _GENESIS.unpack_from(
            data
        )
        if magic != _GENESIS_MAGIC or version != 1:
            raise CorruptEntry(f"genesis magic {magic!r}, version {version}: not known")
        at = _GENESIS.size + cluster_size
        cluster = data[_GENESIS.size : at].decode()
        group = data[at : at + group_size].decode()
        at += group_size
        members: list[tuple[str, bytes]] = []
        for _ in range(member_count):
            end = at + 2 + int.from_bytes(data[at : at + 2], "little")
            members.append((data[at + 2 : end].decode(), data[end : end + INCARNATION_SIZE]))
            at = end + INCARNATION_SIZE
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptEntry(f"genesis: {error}") from error
    if at != len(data) or not members:
        raise CorruptEntry(f"genesis of {len(data)} bytes with {member_count} members needs {at}")
    return Genesis(cluster, group, group_id, tuple(members))
