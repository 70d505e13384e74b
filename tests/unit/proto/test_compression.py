"""Compression of bodies: round trips, bounds on what comes out, missing packages."""

import builtins
import importlib
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import lz4.block
import numpy as np
import pytest
import zstandard

from dledger_proto.batch import compression as codecs
from dledger_proto.batch.codec import BatchView, Compression, Record, check_batch
from dledger_proto.errors import Code
from dledger_proto.limits import BATCH_SIZE_MAX, MIB
from tests.unit.proto.samples import BASE_TIME_MS, RICH, make_batch, refused, with_fields

CODECS = [Compression.ZSTD, Compression.LZ4]
ROWS = [Record(b"the same again " * 20, "tag", ("key",), {"p": "v"}) for _ in range(10)]


def packed(bodies: bytes, stored: bytes, compression: Compression) -> bytes:
    """Return a sound batch of one record whose stored bodies are of our choice."""
    batch = make_batch([Record(bodies)])
    batch = batch[: len(batch) - len(bodies)] + stored
    return with_fields(
        batch, size=len(batch), bodies_stored_size=len(stored), compression=int(compression)
    )


@pytest.mark.parametrize("compression", CODECS)
def test_compressed_bodies_come_back(compression: Compression) -> None:
    batch = make_batch(ROWS, compression=compression)
    assert len(batch) < len(make_batch(ROWS)) / 2
    header = check_batch(batch)
    assert header.compression == compression
    view = BatchView(batch, header)
    assert list(view.records()) == [row._replace(time_ms=BASE_TIME_MS) for row in ROWS]
    assert view.body(3) == ROWS[3].body
    assert view.bodies is view.bodies, "decompressed once"


@pytest.mark.parametrize("compression", CODECS)
def test_bodies_that_do_not_shrink_are_stored_as_they_are(compression: Compression) -> None:
    assert make_batch(RICH, compression=compression) == make_batch(RICH)
    empty = [Record(b""), Record(b"")]
    assert make_batch(empty, compression=compression) == make_batch(empty)


@pytest.mark.parametrize("compression", CODECS)
def test_one_flipped_bit_of_a_compressed_batch_is_refused(compression: Compression) -> None:
    batch = make_batch(ROWS, compression=compression)
    for bit in range(8 * len(batch)):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        refused(lambda damaged=damaged: check_batch(damaged))  # type: ignore[misc]


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def zstd_without_size(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


def lz4_block(data: bytes) -> bytes:
    return bytes(lz4.block.compress(data, store_size=False))


BOMBS: list[tuple[Compression, Callable[[bytes], bytes]]] = [
    (Compression.ZSTD, zstd),
    (Compression.ZSTD, zstd_without_size),
    (Compression.LZ4, lz4_block),
]


@pytest.mark.parametrize(("compression", "pack"), BOMBS)
def test_a_bomb_is_refused_by_its_bound(
    compression: Compression, pack: Callable[[bytes], bytes]
) -> None:
    bomb = pack(bytes(256 * MIB))
    assert len(bomb) < BATCH_SIZE_MAX
    batch = packed(b"x" * 1000, bomb, compression)
    tracemalloc.start()
    try:
        refused(lambda: BatchView(batch).record(0), Code.UNREADABLE_BATCH)
        assert tracemalloc.get_traced_memory()[1] < MIB, "nothing of that size is ever made"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("compression", "pack"), BOMBS)
@pytest.mark.parametrize("difference", [-1, 1])
def test_a_wrong_bodies_size_is_refused(
    compression: Compression, pack: Callable[[bytes], bytes], difference: int
) -> None:
    batch = packed(b"x" * 1000, pack(b"y" * (1000 + difference)), compression)
    refused(lambda: BatchView(batch).bodies, Code.UNREADABLE_BATCH)


def test_a_zstd_frame_without_its_size_is_read() -> None:
    batch = packed(b"x" * 1000, zstd_without_size(b"y" * 1000), Compression.ZSTD)
    assert BatchView(batch).body(0) == b"y" * 1000


def test_bytes_behind_a_zstd_frame_are_refused() -> None:
    for tail in (b"tail", zstd(b"more")):
        batch = packed(b"x" * 1000, zstd(b"y" * 1000) + tail, Compression.ZSTD)
        refused(lambda batch=batch: BatchView(batch).bodies, Code.UNREADABLE_BATCH)  # type: ignore[misc]


def test_a_window_beyond_the_bound_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    stored = frame.compress(b"y" * 1000) + frame.flush()
    batch = packed(b"x" * 1000, stored, Compression.ZSTD)
    assert "window" in refused(lambda: BatchView(batch).bodies, Code.UNREADABLE_BATCH).detail


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("stored", [b"\0", b"garbage of some length", b"\xff" * 100])
def test_garbage_is_refused(compression: Compression, stored: bytes) -> None:
    refused(lambda: BatchView(packed(b"x" * 99, stored, compression)).bodies, Code.UNREADABLE_BATCH)


def test_compressed_nothing_is_refused() -> None:
    batch = packed(b"", lz4_block(b""), Compression.LZ4)
    refused(lambda: check_batch(batch), Code.CORRUPT_BATCH)


MISSING = [(Compression.ZSTD, "zstandard"), (Compression.LZ4, "lz4")]


@pytest.mark.parametrize(("compression", "package"), MISSING)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, compression: Compression, package: str
) -> None:
    batch = make_batch(ROWS, compression=compression)
    real = importlib.import_module

    def without(name: str, *rest: Any) -> ModuleType:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    monkeypatch.setattr(codecs, "_contexts", codecs._Contexts())
    check_batch(batch)
    error = refused(lambda: BatchView(batch).record(0), Code.UNSUPPORTED_FORMAT)
    assert package in error.detail
    error = refused(lambda: make_batch(ROWS, compression=compression), Code.UNSUPPORTED_FORMAT)
    assert package in error.detail


def test_the_columns_without_numpy_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(
        name: str,
        globals: Any = None,  # noqa: A002 - the name of the original
        locals: Any = None,  # noqa: A002 - the name of the original
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        if name == "numpy":
            raise ImportError(name)
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", without)
    view = BatchView(make_batch())
    assert "numpy" in refused(view.columns, Code.UNSUPPORTED_FORMAT).detail
    assert view.body_sizes == (5, 0, 10)


def test_the_optional_packages_are_not_imported_by_the_codec() -> None:
    program = (
        "import sys; import dledger_proto.batch.codec, dledger_proto.segments;"
        "print([m for m in ('numpy', 'zstandard', 'lz4', 'dledger') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == "[]"


def test_columns_as_arrays_are_the_columns() -> None:
    view = BatchView(make_batch())
    columns = view.columns()
    assert columns.body_sizes.tolist() == list(view.body_sizes) == [5, 0, 10]
    assert columns.body_starts.tolist() == [0, 5, 5]
    assert columns.property_sizes.tolist() == list(view.property_sizes)
    assert columns.property_starts.tolist()[0] == 0
    assert columns.tag_hashes.tolist() == list(view.tag_hashes)
    assert columns.times_ms.tolist() == list(view.times)
    assert columns.key_counts.tolist() == list(view.key_counts) == [2, 1, 0]
    assert columns.key_hashes.tolist() == list(view.all_key_hashes)
    assert columns.times_ms.dtype == np.int64
    assert not columns.body_sizes.flags.writeable
    start = int(columns.property_starts[2])
    end = start + int(columns.property_sizes[2])
    assert bytes(view.properties_area[start:end]).startswith(b"\x04\0\x05\0TAGSgreen")
