"""Frames of a peer link, `DLK1`. Pure.

Owns: how messages share a frame. A frame carries every message that waits, up to about a megabyte.
Little-endian:

     0  4  magic "DLK1"     4  2  version (1)     6  2  count
     8  ..  count times: size u32 ; then the messages (`message_codec.encode`)
"""

import struct
from typing import Final

from dledger.types import Buffer

MAGIC: Final = b"DLK1"
VERSION: Final = 1
MESSAGES_PER_FRAME_MAX: Final = 1_024

_HEAD = struct.Struct("<4sHH")


class BadLinkFrame(ValueError):
    """Bytes on a peer link that are no frame of ours; the link is closed."""


def encode_frame(encoded: list[list[Buffer]]) -> list[Buffer]:
    """Return the pieces of one frame that carries messages, each given as its list of buffers."""
    sizes = [sum(len(buffer) for buffer in buffers) for buffers in encoded]
    head = _HEAD.pack(MAGIC, VERSION, len(sizes)) + struct.pack(f"<{len(sizes)}I", *sizes)
    return [head, *(buffer for buffers in encoded for buffer in buffers)]


def parse_frame(frame: Buffer) -> list[memoryview]:
    """Return the messages of a frame as views; BadLinkFrame when it is none of ours."""
    if len(frame) < _HEAD.size:
        raise BadLinkFrame(f"{len(frame)} bytes, a frame has at least {_HEAD.size}")
    magic, version, count = _HEAD.unpack_from(frame)
    if magic != MAGIC or version != VERSION or count > MESSAGES_PER_FRAME_MAX:
        raise BadLinkFrame(f"magic {magic!r} version {version} count {count}")
    start = _HEAD.size + 4 * count
    if len(frame) < start:
        raise BadLinkFrame(f"{len(frame)} bytes for {count} messages")
    sizes: tuple[int, ...] = struct.unpack_from(f"<{count}I", frame, _HEAD.size)
    if start + sum(sizes) != len(frame):
        raise BadLinkFrame(f"sizes add up to {start + sum(sizes)} of {len(frame)} bytes")
    view = memoryview(frame)
    found: list[memoryview] = []
    for size in sizes:
        found.append(view[start : start + size])
        start += size
    return found
