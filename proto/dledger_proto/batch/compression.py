"""Compression of batch bodies. The libraries are optional (`speed` extra) and loaded on first use.

Owns: the mapping from `Compression` to a library, the bound on what decompression may produce, and
what a member checks of compressed bodies without decompressing them. Not: when a producer
compresses. zstd: one frame that declares its content size, window at most `ZSTD_WINDOW_SIZE_MAX`,
no dictionary, nothing behind it. lz4: one block without a size in front. A missing library is
UNSUPPORTED_FORMAT naming the package; what does not decompress is UNREADABLE_BATCH.
"""

import enum
import importlib
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Final, Protocol, cast

from dledger_proto.errors import Code, DledgerError, unreadable
from dledger_proto.limits import BODIES_SIZE_MAX, MIB

if TYPE_CHECKING:
    import zstandard

ZSTD_LEVEL: Final = 1
"""Producers compress; only level 1 is as fast as the log."""
ZSTD_WINDOW_SIZE_MAX: Final = 8 * MIB
"""RFC 8878 asks every decoder to support this size; a batch is smaller."""
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
LZ4_RATIO_MAX: Final = 255
"""Bytes that one byte of a block stands for, at most: a length goes on in bytes of up to 255."""


class Compression(enum.IntEnum):
    """How the bodies of a batch are stored; the number is on the wire."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2


class _Lz4Block(Protocol):
    """The two functions of `lz4.block` in use (the package carries no types)."""

    LZ4BlockError: type[Exception]

    def compress(self, source: bytes, *, store_size: bool) -> bytes: ...

    def decompress(self, source: bytes | memoryview, *, uncompressed_size: int) -> bytes: ...


class _Contexts(threading.local):
    """zstd contexts are expensive to make and not safe to share between threads."""

    compressor: "zstandard.ZstdCompressor | None" = None
    decompressor: "zstandard.ZstdDecompressor | None" = None


_contexts = _Contexts()


def _load(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DledgerError(
            Code.UNSUPPORTED_FORMAT,
            f"compression: the package {package} is not installed; it comes with the extra speed",
        ) from error


def _lz4() -> _Lz4Block:
    return cast("_Lz4Block", _load("lz4.block", "lz4"))


def compress(compression: Compression, bodies: bytes) -> bytes:
    """Return `bodies` compressed with zstd or lz4 (for NONE: unchanged)."""
    if compression is Compression.NONE:
        return bodies
    if compression is Compression.LZ4:
        return _lz4().compress(bodies, store_size=False)
    if _contexts.compressor is None:
        _load("zstandard", "zstandard")
        import zstandard

        _contexts.compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
    return _contexts.compressor.compress(bodies)


def check_stored(compression: int, stored: memoryview, size: int) -> None:
    """Check what compressed bodies say of themselves against the `size` that the header declares.

    Nothing is decompressed, and no library is needed. UNREADABLE_BATCH names what contradicts it.
    """
    if compression == Compression.ZSTD:
        _check_zstd_frame(stored, size)
    elif compression == Compression.LZ4 and size > LZ4_RATIO_MAX * len(stored):
        raise unreadable(
            f"bodies_size {size}, but an lz4 block of {len(stored)} bytes holds at most "
            f"{LZ4_RATIO_MAX * len(stored)}"
        )


def _check_zstd_frame(stored: memoryview, size: int) -> None:
    """Check the header of a frame (RFC 8878, 3.1.1.1): content size, window, no dictionary."""
    header = bytes(stored[:18])
    if len(header) < 6 or header[:4] != ZSTD_MAGIC:
        raise unreadable(f"bodies: begin with {header[:4].hex()}, not with a zstd frame")
    described = header[4]
    is_one_segment = described & 0x20
    if described & 0x0B:
        raise unreadable(f"bodies: zstd frame descriptor {described:#x}: a dictionary or unknown")
    size_bytes = (1 if is_one_segment else 0, 2, 4, 8)[described >> 6]
    at = 5 if is_one_segment else 6
    if not size_bytes or len(header) < at + size_bytes:
        raise unreadable("bodies: the zstd frame declares no content size")
    declared = int.from_bytes(header[at : at + size_bytes], "little")
    declared += 256 if size_bytes == 2 else 0
    if declared != size:
        raise unreadable(f"bodies_size {size}, but the zstd frame says {declared} bytes")
    if not is_one_segment:
        unit = 1 << (7 + (header[5] >> 3))
        _check_window(8 * unit + unit * (header[5] & 7))


def _check_window(size: int) -> None:
    if size > ZSTD_WINDOW_SIZE_MAX:
        raise unreadable(f"bodies: zstd window of {size}, at most {ZSTD_WINDOW_SIZE_MAX}")


def decompress(compression: int, stored: memoryview, size: int) -> bytes:
    """Return the `size` bytes that `stored` holds, never producing more.

    `size` is what a batch header declares; above BODIES_SIZE_MAX nothing is allocated.
    """
    if size > BODIES_SIZE_MAX:
        raise unreadable(f"bodies_size {size}, at most {BODIES_SIZE_MAX}")
    if compression == Compression.ZSTD:
        bodies = _decompress_zstd(stored, size)
    elif compression == Compression.LZ4:
        lz4 = _lz4()
        try:
            bodies = lz4.decompress(stored, uncompressed_size=size)
        except lz4.LZ4BlockError as error:
            raise unreadable(f"bodies: lz4: {error}") from error
    else:
        raise DledgerError(Code.UNSUPPORTED_FORMAT, f"compression {compression} is not known")
    if len(bodies) != size:
        raise unreadable(f"bodies_size {size}, but the bodies unpack to {len(bodies)} bytes")
    return bodies


def _decompress_zstd(stored: memoryview, size: int) -> bytes:
    _load("zstandard", "zstandard")
    import zstandard

    if _contexts.decompressor is None:
        _contexts.decompressor = zstandard.ZstdDecompressor()
    try:
        frame = zstandard.get_frame_parameters(stored)
        # The library trusts a frame's own content size above max_output_size: look before.
        if frame.content_size not in (size, zstandard.CONTENTSIZE_UNKNOWN):
            raise unreadable(
                f"bodies_size {size}, but the zstd frame says {frame.content_size} bytes"
            )
        _check_window(frame.window_size)
        return _contexts.decompressor.decompress(
            stored, max_output_size=size, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise unreadable(f"bodies: zstd: {error}") from error
