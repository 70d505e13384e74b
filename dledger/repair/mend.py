"""Mends a damage in place: checks what a peer sent for it, and writes exactly the damaged bytes.

Owns: which entries fit a damage, and the order of the writes. A peer's entries fit when each passes
its checksums and follows the one before, when the first follows the sound entry before the damage,
and when the last ends where the sound entry behind begins and has the checksum that this entry says
of it. Then they are the entries that were written here: the chain allows no others.

They are equal on every member but for the local stamp, which is made anew: everything before the
entry is synced here, and is what the stamp says.

Written is in place, not into a copy of the segment that takes its name. The old bytes are damaged
and the new ones have the same size, so whatever a power cut leaves of the write is either still
damaged, and found again, or mended. Bytes beside them are not touched. A copy would need the room
and the time of a whole segment for each flipped bit, and readers would keep the old file open.
"""

from typing import Final

from dledger.files import FileSystem
from dledger.log.errors import LogFailed
from dledger.log.memory.segment import file_offset
from dledger.repair.scan import MISSING, Damage, Kind
from dledger.types import Position
from dledger_proto.entry import CorruptEntry, decode_entry, stamp_local

_LOCAL_AT: Final = 56
_LOCAL_END: Final = 72
"""The bytes of an entry that differ from member to member, with the reserved ones behind them."""


def fitting(damage: Damage, frames: bytes) -> bytes:
    """Return the bytes that belong in the place of damaged entries; CorruptEntry: these do not fit.

    `frames` are whole entries, as a peer has them.
    """
    chain, salt = damage.before, damage.part.header.salt
    parts: list[bytes] = []
    at = 0
    while at < len(frames):
        header = decode_entry(frames, at, check_payloads=True).header
        mismatch = chain.mismatch(header)
        if mismatch is not None:
            raise CorruptEntry(mismatch)
        body_at, end = at + header.header_size, at + header.size
        parts += (stamp_local(frames[at:body_at], salt, header.position), frames[body_at:end])
        chain = chain.after(header)
        at = end
    found, wanted = (chain.index, chain.position, chain.crc), _ends(damage)
    if found != wanted:
        raise CorruptEntry(
            f"the entries end with (index, position, crc) {found}, what follows says {wanted}"
        )
    return b"".join(parts)


def _ends(damage: Damage) -> tuple[int, int, int]:
    return damage.last, damage.end, damage.last_crc


def mend_entries(fs: FileSystem, damage: Damage, content: bytes) -> None:
    """Write what `fitting` returned, durably. Blocks.

    FileNotFoundError: the segment was trimmed meanwhile. OSError: the disk refuses.
    """
    assert len(content) == damage.end - damage.start, "entries of another size"
    _write(fs, damage, file_offset(damage.part.base, damage.start), content)


def mend_alone(fs: FileSystem, damage: Damage) -> None:
    """Mend what this member knows by itself: a header, a stamp. Durably, blocks, OSError."""
    part = damage.part
    if damage.kind is Kind.HEADER:
        _write(fs, damage, 0, part.header.encode())
        return
    assert damage.kind is Kind.STAMP, damage.kind
    crc = damage.last_crc.to_bytes(4, "little")
    stamped = stamp_local(bytes(4) + crc + bytes(_LOCAL_END - 8), part.header.salt, damage.start)
    place = file_offset(part.base, Position(damage.start + _LOCAL_AT))
    _write(fs, damage, place, stamped[_LOCAL_AT:_LOCAL_END])


def _write(fs: FileSystem, damage: Damage, offset: int, content: bytes) -> None:
    path = damage.part.path
    is_new = damage.kind is Kind.HEADER and damage.why == MISSING
    file = fs.open(path, create=is_new)  # a file that was trimmed meanwhile is not made again
    try:
        file.pwritev([content], offset)
        try:
            file.fdatasync()
        except OSError as error:  # never tried again, also on a full disk (I16)
            raise LogFailed(error) from error
    finally:
        file.close()
    if is_new:
        fs.sync_folder(path.rpartition("/")[0])
