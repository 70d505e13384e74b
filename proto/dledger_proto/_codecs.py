"""Compression of batch bodies. The libraries are optional (`speed` extra) and loaded on first use.

Owns: the mapping from `Compression` to a library, and the bound on what decompression may produce.
Not: when a producer compresses. zstd: one frame with its content size or without, window at most
`ZSTD_WINDOW_SIZE_MAX`, no dictionary, nothing behind it. lz4: one block without a size in front.
A missing library is UNSUPPORTED_FORMAT naming the package; damaged data is CORRUPT_BATCH.
"""

import enum
import importlib
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Final, Protocol, cast

from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import MIB

if TYPE_CHECKING:
    import zstandard

ZSTD_LEVEL: Final = 1
"""Producers pay for it; level 1 is the one that keeps up with the log."""
ZSTD_WINDOW_SIZE_MAX: Final = 8 * MIB
"""What RFC 8878 asks every decoder to support; a batch is smaller than this."""


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
            f"compression: the package {package} is not installed (pip install 'dledger[speed]')",
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


def decompress(compression: int, stored: memoryview, size: int) -> bytes:
    """Return the `size` bytes that `stored` holds, never producing more.

    The caller has bounded `size` (a batch header is checked against BATCH_SIZE_MAX).
    """
    if compression == Compression.ZSTD:
        bodies = _decompress_zstd(stored, size)
    elif compression == Compression.LZ4:
        lz4 = _lz4()
        try:
            bodies = lz4.decompress(stored, uncompressed_size=size)
        except lz4.LZ4BlockError as error:
            raise DledgerError(Code.CORRUPT_BATCH, f"bodies: lz4: {error}") from error
    else:
        raise DledgerError(Code.UNSUPPORTED_FORMAT, f"compression {compression} is not known")
    if len(bodies) != size:
        raise DledgerError(
            Code.CORRUPT_BATCH, f"bodies_size {size}, but the bodies unpack to {len(bodies)} bytes"
        )
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
            raise DledgerError(
                Code.CORRUPT_BATCH,
                f"bodies_size {size}, but the zstd frame says {frame.content_size} bytes",
            )
        if frame.window_size > ZSTD_WINDOW_SIZE_MAX:
            raise DledgerError(
                Code.CORRUPT_BATCH,
                f"bodies: zstd window of {frame.window_size}, at most {ZSTD_WINDOW_SIZE_MAX}",
            )
        return _contexts.decompressor.decompress(
            stored, max_output_size=size, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise DledgerError(Code.CORRUPT_BATCH, f"bodies: zstd: {error}") from error
