"""Bytes that are not what was written, by whatever hand: damage, or a later program's.

Goal: each has its own code and remedy, nothing that may be of use is replaced, and no error of a
library comes through. Method: exports of a log in memory, then changed.
"""

import errno
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dledger_client.export import ExportCode, ExportError, read_export, upkeep
from dledger_client.export.files import parquet
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import FILE_NAME, name_of
from dledger_client.export.manifests import history
from dledger_client.export.manifests.records import (
    Manifest,
    Plan,
    dump,
    load_manifest,
    load_plan,
    manifest_name,
    plan_name,
    summed,
)
from dledger_client.export.run import plan_only
from tests.unit.export.fakes import FakeLog, HereEngine, QuickDisk
from tests.unit.export.test_files import NOW_MS, OPTIONS, now, refusal, run, storage_in


@pytest.mark.parametrize(
    "error",
    [
        pa.ArrowInvalid("x"), pa.ArrowNotImplementedError("x"), pa.ArrowKeyError("x"),
        pa.ArrowMemoryError("x"), OSError("x"), TypeError("x"), KeyError("x"),
    ],
)  # fmt: skip
def test_whatever_a_reader_says_of_damage_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Flipped bits make pyarrow say all of these: such a file is made again, or named."""
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 5}))
    version = read_export(storage.root)

    def read(_path: Path, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        raise error
        yield

    monkeypatch.setattr(parquet, "read_batches", read)
    (problem,) = upkeep.verify(storage).problems
    assert problem.code is ExportCode.DAMAGED
    with pytest.raises(ExportError, match="DAMAGED"):
        version.read()


def test_a_file_that_others_may_misread_is_found(tmp_path: Path) -> None:
    """Whatever byte is changed, also of statistics and indexes, which no row hangs on."""
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 5}))
    (entry,) = read_export(storage.root).files
    path = storage.path(entry.path)
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert len(upkeep.verify(storage).problems) == 1, f"byte {at} of {len(whole)}"
    path.write_bytes(whole)
    assert upkeep.verify(storage).problems == ()


@pytest.mark.parametrize("name", [manifest_name(0), plan_name(0)])
def test_no_other_digit_is_believed(tmp_path: Path, name: str) -> None:
    """An end, a date, a path: any of them would lose rows, or repeat them, in silence."""
    storage, log = storage_in(tmp_path), FakeLog({0: 25, 1: 7})
    run(storage, log)
    path = storage.path(name)
    whole = path.read_text()
    digits = [at for at, character in enumerate(whole) if character.isdigit()]
    for at in digits:
        path.write_text(whole[:at] + str((int(whole[at]) + 1) % 10) + whole[at + 1 :])
        with pytest.raises(ExportError, match=r"DAMAGED|NEWER_FORMAT"):
            _load(name, path.read_bytes())
    assert len(digits) > 50


def _load(name: str, data: bytes) -> Plan | Manifest:
    return load_plan(name, data) if "plans" in name else load_manifest(name, data)


def _names(record: Plan | Manifest) -> list[str]:
    """Return all files that somebody may write, or read, by a record."""
    if isinstance(record, Manifest):
        return [each.path for each in record.added]
    pieces = [*record.pieces, *(each.piece for each in record.merges)]
    inputs = [each.path for merge in record.merges for each in merge.inputs]
    return [*(name_of(record.identity.topic, each) for each in pieces), *inputs]


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_however_deep_it_nests_it_is_damage(opening: str, closing: str) -> None:
    """Also where it is read, and just about could not be written again."""
    for depth in (*range(800, 1_100), 100_000):
        text = f'{{"format": 2, "x": {opening * depth}1{closing * depth}}}'
        for name in (manifest_name(0), plan_name(0)):
            with pytest.raises(ExportError, match="DAMAGED"):
                _load(name, text.encode())


def test_a_sum_is_of_all_bytes(tmp_path: Path) -> None:
    """A file that says the same in other bytes is not the one that was written."""
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 25, 1: 7}))
    for name in (manifest_name(0), plan_name(0)):
        whole = storage.path(name).read_bytes()
        for at in range(0, len(whole), 7):
            with pytest.raises(ExportError):
                _load(name, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        for other in (json.dumps(json.loads(whole)).encode(), whole + b"\n", whole[:-1]):
            with pytest.raises(ExportError, match=r"DAMAGED.* its own checksum"):
                _load(name, other)


WRONG: Sequence[Any] = (
    None, True, -1, 1.5, 1 << 70, "", "../../x", [], [1], {}, {"x": "y"}, "\ud800",
)  # fmt: skip


def changed(value: Any) -> Iterator[Any]:
    """Yield a JSON value with one thing in it changed, or gone, at any depth."""
    if isinstance(value, dict):
        for name in value:
            yield {key: each for key, each in value.items() if key != name}
            yield from ({**value, name: other} for other in changed(value[name]))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in changed(each))
    yield from (other for other in WRONG if other != value)


@pytest.mark.parametrize("name", [manifest_name(1), plan_name(1), plan_name(2)])
def test_whoever_sums_nonsense_is_told_what_it_is(tmp_path: Path, name: str) -> None:
    """No library's error comes through, and no name leads out of the folder.

    Version 2 is a compaction.
    """
    storage, log = storage_in(tmp_path), FakeLog({0: 25, 1: 7})
    run(storage, log)
    log.ends = {0: 40, 1: 7}
    run(storage, log)
    upkeep.compact(storage, HereEngine(), 1 << 30, now)
    whole = storage.path(name).read_bytes()
    said = json.loads(whole)
    del said["crc"]
    assert summed(said) == whole
    tried, codes = 0, set[ExportCode]()
    for each in changed(said):
        tried += 1
        if not isinstance(each, dict):
            continue
        try:
            record = _load(name, summed(each))
        except ExportError as error:
            codes.add(error.code)
        else:
            assert all(map(FILE_NAME.fullmatch, _names(record))), each
    assert codes == {ExportCode.DAMAGED, ExportCode.OLDER_FORMAT, ExportCode.NEWER_FORMAT}
    assert tried > 100


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("columns", ["queue_offset", "queue_offset", "store_timestamp"]),
        ("columns", ["queue_id", "store_timestamp"]),
        ("columns", ["queue_offset"]),
        ("time_ms", -1),
        ("time_ms", 1 << 60),
    ],
)
def test_what_no_writer_of_ours_says_is_damage(tmp_path: Path, name: str, said: object) -> None:
    """Else it would be met later, as an error of whatever goes by it."""
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 5}))
    path = storage.path(manifest_name(0))
    manifest = json.loads(path.read_bytes()) | {name: said}
    del manifest["crc"]
    path.write_bytes(summed(manifest))
    with pytest.raises(ExportError, match=f"DAMAGED.*{name}"):
        history.load(storage)


def test_a_footer_that_nests_is_damage(tmp_path: Path) -> None:
    """Whoever puts such a file in the way stops no run."""
    storage, log = storage_in(tmp_path), FakeLog({0: 5})
    run(storage, log)
    (entry,) = read_export(storage.root).files
    path = storage.path(entry.path)
    table = pq.read_table(path)
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({parquet.FOOTER: "[" * 200_000})
    (problem,) = upkeep.verify(storage).problems
    assert problem.code is ExportCode.DAMAGED
    storage.delete(manifest_name(0))
    assert run(storage, log).manifest is not None
    assert upkeep.verify(storage).problems == ()


def test_a_name_that_only_looks_like_a_number_is_nobodys(tmp_path: Path) -> None:
    """As "²" does to `isdigit`."""
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 5}))
    storage.path(f"_dledger/manifests/{'²' * 10}.json").write_bytes(b"")
    assert history.load(storage).rows == 5


def test_a_version_names_all_that_lies_between_its_ends(tmp_path: Path) -> None:
    """A file that is left out, by whatever bug of a writer, is no smaller export."""
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 100}))
    path = storage.path(manifest_name(0))
    said = json.loads(path.read_bytes())
    del said["crc"], said["added"][1]
    path.write_bytes(summed(said))
    with pytest.raises(ExportError, match=r"DAMAGED.*queue 0 is written up to offset"):
        read_export(storage.root)


def _with_more(value: Any) -> Any:
    """Return it with a field more in each object, as a later program of this format may write."""
    if isinstance(value, dict):
        fields = {name: _with_more(each) for name, each in value.items()}
        return fields if all(name.isdigit() for name in fields) else {**fields, "more": [1]}
    return [_with_more(each) for each in value] if isinstance(value, list) else value


def test_fields_of_a_later_program_are_passed_over(tmp_path: Path) -> None:
    """At every depth, of manifests and of plans, as long as the format is ours."""
    storage, log = storage_in(tmp_path), FakeLog({0: 5})
    run(storage, log)
    log.ends = {0: 25}
    plan = plan_only(storage, log, OPTIONS, NOW_MS).plan
    assert plan is not None
    storage.put_if_absent(plan_name(1), dump(plan))
    for name in (manifest_name(0), plan_name(1)):
        path = storage.path(name)
        said = json.loads(path.read_text())
        del said["crc"]
        path.write_bytes(summed(_with_more(said)))
    outcome = run(storage, log)
    assert outcome.plan == plan
    assert read_export(storage.root).rows == 25


def test_a_file_of_a_later_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Its footer has fields that we do not know: that is no damage, which would be replaced."""
    storage, log = storage_in(tmp_path), FakeLog({0: 5})
    run(storage, log)
    (entry,) = read_export(storage.root).files
    path = storage.path(entry.path)
    table = pq.read_table(path, partitioning=None)
    said = json.loads((pq.read_metadata(path).metadata or {})[b"dledger"])
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        later = {**said, "schema": 2, "form": "x"}
        writer.add_key_value_metadata({"dledger": json.dumps(later)})
    storage.path(manifest_name(0)).unlink()
    before = path.read_bytes()
    assert refusal(storage, log).code is ExportCode.NEWER_FORMAT
    assert path.read_bytes() == before


def test_a_damaged_file_is_in_no_compaction(tmp_path: Path) -> None:
    """A plan that cannot be finished would stand in the way of every export."""
    storage, log = storage_in(tmp_path), FakeLog({0: 40})
    run(storage, log)
    path = storage.path(read_export(storage.root).files[1].path)
    whole = path.read_bytes()
    for broken in (b"PAR1", None):
        if broken is None:
            path.unlink()
        else:
            path.write_bytes(broken)
        with pytest.raises(ExportError, match="DAMAGED"):
            upkeep.compact(storage, HereEngine(), 1 << 30, now)
        assert history.open_plan(storage, 1) is None
    log.ends = {0: 60}
    assert run(storage, log).manifest is not None
    path.write_bytes(whole)
    assert upkeep.compact(storage, HereEngine(), 1 << 30, now).manifest is not None
    assert upkeep.verify(storage, log).problems == ()


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV])
def test_a_file_system_without_hard_links_is_named(tmp_path: Path, number: int) -> None:
    """Before anything is written that somebody could take for a version; a missing right is not
    that."""

    class Linkless(QuickDisk):
        def link(self, old: Path, new: Path) -> None:
            raise OSError(number, os.strerror(number), old, None, new)

    storage = ExportStorage(tmp_path / "lake", Linkless())
    assert refusal(storage, FakeLog({0: 5})).code is ExportCode.NO_HARD_LINKS
    assert all("tmp" not in name for name in storage.walk("."))
    assert history.last_number(storage) == -1
    number = errno.EACCES
    with pytest.raises(PermissionError):
        run(storage, FakeLog({0: 5}))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_is_told_as_such(tmp_path: Path, number: int) -> None:
    """By a task, whose engine would else tell that it died; what else a disk says is passed on."""

    class FullDisk(QuickDisk):
        left = 1
        number = 0

        def create(self, path: Path) -> BinaryIO:
            self.left -= 1
            if self.left < 0:
                raise OSError(self.number, os.strerror(self.number))
            return super().create(path)

    disk = FullDisk()
    disk.number = number
    error = refusal(ExportStorage(tmp_path / "lake", disk), FakeLog({0: 5}))
    assert error.code is ExportCode.FOLDER_FAILED
    assert error.what == f"{tmp_path / 'lake'}: {os.strerror(number)}"
    disk.number = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        run(ExportStorage(tmp_path / "lake", disk), FakeLog({0: 5}))


def test_a_queue_that_vanished_leaves_a_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was stored in it since is missing, and nobody knows how much; until it is back."""
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 5, 1: 7}))
    accepting = replace(OPTIONS, accept_data_loss=True)
    manifest = run(storage, FakeLog({0: 9}), accepting).manifest
    assert manifest is not None
    assert manifest.absent == (1,)
    assert "the topic has no queue 1 any more: its records from offset 7" in caplog.text
    back = run(storage, FakeLog({0: 9, 1: 8})).manifest
    assert back is not None
    assert (back.absent, back.gaps, dict(back.end)) == ((), (), {0: 9, 1: 8})
    assert upkeep.verify(storage).problems == ()


def test_a_log_that_cannot_be_read_hides_no_damage(tmp_path: Path) -> None:
    """It is told once: each other file would wait as long for it."""
    storage, log = storage_in(tmp_path), FakeLog({0: 10, 1: 10, 2: 10})
    run(storage, log)
    *_, last = read_export(storage.root).files
    storage.path(last.path).unlink()
    found = upkeep.verify(storage, replace(log, is_away=True))
    codes = [problem.code for problem in found.problems]
    assert codes == [ExportCode.NOT_COMPARED, ExportCode.DAMAGED]
    assert (found.files, found.compared) == (3, 0)
