"""Checkpoints: what they save, and that nobody hangs on them.

Goal: a version is the same with one, without one, and with one that is damaged. Method: exports of
a log in memory, and a disk that says what was read.
"""

import errno
import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from dledger_client.export import ExportCode, ExportError, read_export, upkeep
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.manifests import history
from dledger_client.export.manifests.checkpoint import (
    CHECKPOINTS,
    Version,
    checkpoint_name,
    load_checkpoint,
)
from dledger_client.export.manifests.records import manifest_name, summed
from tests.unit.export.fakes import FakeLog, FaultyDisk, HereEngine, QuickDisk
from tests.unit.export.test_damage import changed
from tests.unit.export.test_files import now, run, storage_in


def compacted(tmp_path: Path) -> ExportStorage:
    """Return an export of versions 0 to 4: two, the compaction of both with its checkpoint, two."""
    storage, log = storage_in(tmp_path), FakeLog({0: 5, 1: 7})
    for number in range(5):
        if number == 2:
            assert upkeep.compact(storage, HereEngine(), 1 << 30, now).manifest is not None
            continue
        log.ends = {queue: end + 3 for queue, end in log.ends.items()}
        assert run(storage, log).manifest is not None
    return storage


def same(left: Version, right: Version) -> bool:
    """Return whether two versions hold the same, whatever they know of what was replaced."""
    return replace(left, removed_ms={}) == replace(right, removed_ms={})


def reads_of(storage: ExportStorage, number: int | None = None) -> list[str]:
    """Return the names of the records that are read for a version."""
    disk = FaultyDisk(storage.root)
    assert same(
        history.load(ExportStorage(storage.root, disk), number),
        history.load(storage, number, whole=True),
    )
    return sorted(
        {
            Path(call.removeprefix("read ")).relative_to(storage.root).as_posix()
            for call in disk.calls
            if call.startswith("read ")
        }
    )


def test_versions_before_a_compaction_are_not_read(tmp_path: Path) -> None:
    """But for who asks for one of them."""
    storage = compacted(tmp_path)
    behind = [manifest_name(number) for number in (2, 3, 4)]
    assert reads_of(storage) == [checkpoint_name(2), *behind]
    assert reads_of(storage, 2) == [checkpoint_name(2), manifest_name(2)]
    assert reads_of(storage, 1) == [manifest_name(0), manifest_name(1)]
    assert len(read_export(storage.root, 1).files) == 4
    assert upkeep.verify(storage).problems == ()


def test_a_checkpoint_that_does_not_fit_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Any bit of it, half of it, none of it: the version is the same, and the file is named."""
    storage = compacted(tmp_path)
    whole = history.load(storage, whole=True)
    path = storage.path(checkpoint_name(2))
    good = path.read_bytes()
    flipped = (good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(0, len(good), 31))
    for broken in (*flipped, good[: len(good) // 2], b"", b"[" * 9_000, _other_format(good)):
        path.write_bytes(broken)
        caplog.clear()
        assert same(history.load(storage), whole)
        assert f"{checkpoint_name(2)}" in caplog.text
        assert "delete it" in caplog.text
    path.unlink()
    caplog.clear()
    assert same(history.load(storage), whole)
    assert caplog.text == ""


def _other_format(good: bytes) -> bytes:
    said = json.loads(good)
    del said["crc"]
    return summed({**said, "format": 3})


def test_whoever_sums_nonsense_is_not_believed(tmp_path: Path) -> None:
    """Fields that lack, of other types, of other files: no library's error comes through."""
    storage = compacted(tmp_path)
    name, last = checkpoint_name(2), history.manifest_of(storage, 2)
    manifest = storage.path(manifest_name(2)).read_bytes()
    said: dict[str, Any] = json.loads(storage.path(name).read_bytes())
    del said["crc"]
    right, codes = history.load(storage, 2), set[ExportCode]()
    for each in changed(said):
        if not isinstance(each, dict):
            continue
        try:
            found = load_checkpoint(name, summed(each), last, manifest)
        except ExportError as error:
            codes.add(error.code)
        else:
            # Sizes, sums and times are as good as whoever summed them, as a manifest's are.
            assert {*found.files} == {*right.files}
    assert codes == {ExportCode.DAMAGED, ExportCode.OLDER_FORMAT, ExportCode.NEWER_FORMAT}


def test_a_full_disk_takes_nothing_from_a_compaction(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is published when its checkpoint is begun: to say that it failed would be untrue."""

    class FullDisk(QuickDisk):
        left = 1 << 30

        def create(self, path: Path) -> BinaryIO:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            return super().create(path)

    storage, log = storage_in(tmp_path), FakeLog({0: 25})
    run(storage, log)
    log.ends = {0: 30}
    run(storage, log)
    disk = FullDisk()
    disk.left = 3  # the plan, the merged file, the manifest
    full = ExportStorage(storage.root, disk)
    with caplog.at_level(logging.WARNING):
        assert upkeep.compact(full, HereEngine(), 1 << 30, now).manifest is not None
    assert "version 2 has no checkpoint" in caplog.text
    assert storage.names(CHECKPOINTS) == []
    assert len(read_export(storage.root).files) == 1


def test_a_collection_keeps_the_last_checkpoints(tmp_path: Path) -> None:
    """The last may be damaged; and what was collected is in the next one no more."""
    storage, log = storage_in(tmp_path), FakeLog({0: 5})
    run(storage, log)
    for _ in range(4):
        log.ends = {0: log.ends[0] + 3}
        run(storage, log)
        assert upkeep.compact(storage, HereEngine(), 1 << 30, now).manifest is not None
    assert len(history.load(storage).removed_ms) == 8
    deleted = upkeep.collect(storage, upkeep.GRACE_MS_MIN, 1 << 60)
    assert [name for name in deleted if name.startswith(CHECKPOINTS)] == [
        checkpoint_name(2), checkpoint_name(4),
    ]  # fmt: skip
    assert storage.names(CHECKPOINTS) == [Path(checkpoint_name(number)).name for number in (6, 8)]
    log.ends = {0: log.ends[0] + 3}
    run(storage, log)
    assert upkeep.compact(storage, HereEngine(), 1 << 30, now).manifest is not None
    assert len(history.load(storage).removed_ms) == 2
    assert len(history.load(storage, whole=True).removed_ms) == 10
    assert upkeep.verify(storage, log).problems == ()
