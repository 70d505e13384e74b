"""Files, names and cuts: what others read, and what we believe of it."""

import json
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_client.arrow import COLUMNS, schema_of
from dledger_client.errors import ClientError
from dledger_client.export import ExportCode, ExportError, read_export, upkeep
from dledger_client.export.compact import make_compaction
from dledger_client.export.engines.local import LocalEngine
from dledger_client.export.files import parquet
from dledger_client.export.files.content import ContentSum
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import (
    FILE_NAME,
    FrozenQueue,
    Layout,
    Piece,
    day_of,
    name_of,
    pieces_of,
)
from dledger_client.export.manifests import history
from dledger_client.export.manifests.records import dump, load_manifest, manifest_name, plan_name
from dledger_client.export.planning import COLUMNS as EXPORTED
from dledger_client.export.planning import MIB, Options
from dledger_client.export.run import Outcome, export_once, plan_only
from dledger_client.export.source import FreezeRequest, FrozenLog
from tests.unit.export.fakes import DAY0, IDENTITY, FakeLog, HereEngine, QuickDisk, rows_of

OPTIONS = Options("orders", file_bytes=MIB)
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def now() -> int:
    return NOW_MS


def storage_in(folder: Path) -> ExportStorage:
    return ExportStorage(folder / "lake", QuickDisk())


def run(storage: ExportStorage, log: FakeLog, options: Options = OPTIONS) -> Outcome:
    return export_once(storage, log, HereEngine(), options, now)


def refusal(storage: ExportStorage, log: FakeLog, options: Options = OPTIONS) -> ExportError:
    with pytest.raises(ExportError) as refused:
        run(storage, log, options)
    return refused.value


# Names and cuts.


def test_a_name_is_a_function_of_the_range() -> None:
    """Its size is no part of it; a topic's percent sign is escaped as Hive does."""
    piece = Piece(3, 7, 11, "2024-10-04", 99)
    name = name_of("a%b", piece)
    assert name == name_of("a%b", replace(piece, size=1))
    assert name == (
        "topic=a%25b/dt=2024-10-04/queue=0003/00000000000000000007-00000000000000000011.parquet"
    )
    assert FILE_NAME.fullmatch(name)


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=6),
    st.integers(0, 60),
    st.integers(1, 5_000),
    st.sampled_from(Layout),
)
def test_pieces_are_the_range_cut_at_days(
    per_day: list[int], start: int, size_max: int, layout: Layout
) -> None:
    """Each offset once, in order; none spans two days; none is empty."""
    days, end = [], 0
    for number, count in enumerate(per_day):
        days.append((end, f"2024-10-{number + 1:02d}"))
        end += count
    start = min(start, end)
    frozen = FrozenQueue(0, start, 0, end, end, ((0, 0), (end, end * 100)), tuple(days))
    pieces = list(pieces_of(frozen, layout, size_max))
    assert [at for piece in pieces for at in range(piece.start, piece.end)] == [*range(start, end)]
    assert all(piece.start < piece.end for piece in pieces)
    if layout is Layout.DATE:
        day_at = {at: day for first, day in days for at in range(first, end)}
        assert all(day_at[at] == p.date for p in pieces for at in range(p.start, p.end))


def test_records_lie_in_the_folder_of_their_day(tmp_path: Path) -> None:
    """By the rows themselves, not by the plan."""
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 130}))
    for entry in read_export(storage.root).files:
        batches = parquet.read_batches(storage.path(entry.path), ["store_timestamp"])
        days = {str(row["store_timestamp"].date()) for b in batches for row in b.to_pylist()}
        assert days == {entry.date}
        assert f"dt={entry.date}/" in entry.path


# Files.


def test_encodings_and_footer(tmp_path: Path) -> None:
    """Deltas for offsets and times, no dictionary for bodies, statistics, a page index, zstd."""
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 9}))
    (entry,) = read_export(storage.root).files
    found = pq.read_metadata(storage.path(entry.path))
    assert found.num_row_groups == 1
    group = found.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(found.num_columns)}
    for name in ("queue_offset", "store_timestamp", "born_timestamp"):
        assert "DELTA_BINARY_PACKED" in columns[name].encodings
    assert "RLE_DICTIONARY" in columns["topic"].encodings
    assert "RLE_DICTIONARY" not in columns["body"].encodings
    assert columns["queue_offset"].is_stats_set
    assert columns["queue_offset"].has_offset_index
    assert {each.compression for each in columns.values()} == {"ZSTD"}
    footer = json.loads((found.metadata or {})[b"dledger"])
    assert (footer["start"], footer["end"], footer["crc"]) == (0, 9, entry.crc)
    assert (footer["topic_id"], footer["schema"]) == ("00" * 16, 1)
    assert (entry.time_min_ms, entry.time_max_ms) == (DAY0, DAY0 + 8 * DAY_MS // 40)


def test_a_file_is_read_by_bytes_and_not_by_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever checks or merges: a bound of rows alone is none where bodies are large."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 20_000)
    monkeypatch.setattr(parquet, "READ_BYTES", 4_000)
    columns = ("queue_offset", "store_timestamp", "body")
    rows = rows_of(0, 0, 60, columns, 100)
    bodies = pa.array([bytes([at]) * (1_000 if at < 50 else 10) for at in range(60)], pa.binary())
    rows = rows.set_column(2, "body", bodies)
    path = tmp_path / "a"
    with path.open("wb") as file:
        portions = [rows.slice(at, 5) for at in range(0, 60, 5)]
        parquet.write(file, IDENTITY, Piece(0, 0, 60), columns, portions)
    found = list(parquet.read_batches(path, columns))
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([rows]))
    assert max(batch.nbytes for batch in found) < 2 * parquet.READ_BYTES
    assert len(found) < 30


@pytest.mark.parametrize("offsets", [[0, 0, 2], [0, 2, 1], [1, 1, 1], [0, 1, None]])
def test_rows_out_of_order_are_not_believed(tmp_path: Path, offsets: list[int | None]) -> None:
    """Though their bounds and their number are as they should be."""
    rows = rows_of(0, 0, 3, EXPORTED, 40)
    at = EXPORTED.index("queue_offset")
    wrong = rows.set_column(at, rows.schema.field(at), pa.array(offsets, pa.int64()))
    with (
        (tmp_path / "a").open("wb") as file,
        pytest.raises(ValueError, match="where offsets that grow"),
    ):
        parquet.write(file, IDENTITY, Piece(0, 0, 3), EXPORTED, [wrong])


@given(st.integers(0, 60), st.lists(st.integers(0, 60), max_size=5))
def test_the_sum_is_of_rows_and_not_of_batches(count: int, borders: list[int]) -> None:
    """All columns there are; however they are cut."""
    schema = schema_of(EXPORTED)
    whole, parts = ContentSum(schema), ContentSum(schema)
    rows = rows_of(0, 0, count, EXPORTED, 40)
    whole.update(rows)
    at = 0
    for border in [*sorted(min(border, count) for border in borders), count]:
        parts.update(rows.slice(at, border - at))
        at = border
    assert parts.digest() == whole.digest()


def test_the_sum_notices_every_column() -> None:
    """Another value, a null for an empty one, two values that changed places."""
    schema = schema_of(EXPORTED)

    def sum_of(batch: pa.RecordBatch) -> int:
        total = ContentSum(schema)
        total.update(batch)
        return total.digest()

    rows = rows_of(0, 1, 3, EXPORTED, 40)
    other_queue = rows_of(1, 1, 3, EXPORTED, 40)
    sums = {
        sum_of(rows),
        sum_of(rows_of(0, 1, 4, EXPORTED, 40)),
        sum_of(other_queue),
    }
    for name in EXPORTED:
        if name in COLUMNS and name != "topic":
            columns = [rows.column(each) for each in EXPORTED]
            place = EXPORTED.index(name)
            columns[place] = pa.nulls(2, columns[place].type)
            sums.add(sum_of(pa.RecordBatch.from_arrays(columns, schema=schema)))
    assert len(sums) == 3 + len(EXPORTED) - 1


# Read by others.


def test_others_read_the_same(tmp_path: Path) -> None:
    """DuckDB and plain pyarrow: counts and sums, from the version's list of files."""
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 95, 1: 31}))
    version = read_export(storage.root)
    ours = version.read()
    ((count, offsets, bodies),) = duckdb.execute(
        "select count(*), sum(queue_offset), sum(octet_length(body)) from read_parquet(?)",
        [version.paths],
    ).fetchall()
    rows = ours.to_pylist()
    assert count == ours.num_rows == version.rows == 126
    assert offsets == sum(row["queue_offset"] for row in rows)
    assert bodies == sum(len(row["body"]) for row in rows)
    tables = [pq.read_table(path, partitioning=None) for path in version.paths]
    assert [row for table in tables for row in table.to_pylist()] == rows


# What is refused, in one line each, with nothing changed.


def test_another_cluster_topic_or_layout_is_refused(tmp_path: Path) -> None:
    """By the manifest, before anything is written."""
    storage, log = storage_in(tmp_path), FakeLog({0: 5})
    run(storage, log)
    more = FakeLog({0: 8})
    foreign = replace(log.identity, cluster="c2")
    remade = replace(log.identity, topic_id="22" * 16)
    before = storage.walk(".")
    for code, other, options in (
        (ExportCode.FOREIGN_CLUSTER, replace(more, identity=foreign), OPTIONS),
        (ExportCode.OTHER_TOPIC, replace(more, identity=remade), OPTIONS),
        (ExportCode.OTHER_TOPIC, more, replace(OPTIONS, topic="pays")),
        (ExportCode.OTHER_LAYOUT, more, replace(OPTIONS, layout=Layout.QUEUE)),
        (ExportCode.LOG_SHORTER, FakeLog({0: 4}), OPTIONS),
        (ExportCode.LOG_SHORTER, FakeLog({0: 4}), replace(OPTIONS, until_ms=1 << 45)),
        (ExportCode.DATA_LOSS, FakeLog({1: 4}), OPTIONS),
    ):
        error = refusal(storage, other, options)
        assert error.code is code
        assert error.remedy
        assert str(error).startswith(f"DLEDGER_EXPORT_{code}: ")
    assert storage.walk(".") == before


def test_an_open_plan_keeps_its_layout(tmp_path: Path) -> None:
    """Also before there is a version: who asks for another one is told."""
    storage, log = storage_in(tmp_path), FakeLog({0: 5})
    plan = plan_only(storage, log, OPTIONS, NOW_MS).plan
    assert plan is not None
    storage.put_if_absent(plan_name(0), dump(plan))
    other = replace(OPTIONS, layout=Layout.QUEUE)
    assert refusal(storage, log, other).code is ExportCode.OTHER_LAYOUT
    assert run(storage, log, replace(OPTIONS, layout=Layout.DATE)).adopted


def test_a_newer_format_is_refused_and_a_damaged_record_named(tmp_path: Path) -> None:
    """Of manifests and of plans."""
    storage, log = storage_in(tmp_path), FakeLog({0: 5})
    run(storage, log)
    path = storage.path(manifest_name(0))
    good = path.read_text()
    for text, code in (
        (good.replace('"format": 2', '"format": 3'), ExportCode.NEWER_FORMAT),
        (good.replace('"format": 2', '"format": 1'), ExportCode.OLDER_FORMAT),
        ("[" * 100_000, ExportCode.DAMAGED),
        (good[: len(good) // 2], ExportCode.DAMAGED),
        (good.replace('"number": 0', '"number": 3'), ExportCode.DAMAGED),
        ("[]", ExportCode.DAMAGED),
        (good.replace('"added"', '"addled"'), ExportCode.DAMAGED),
    ):
        path.write_text(text)
        error = refusal(storage, FakeLog({0: 9}))
        assert error.code is code
        assert path.name in error.what
    path.write_text(good)
    manifest = load_manifest(path.name, path.read_bytes())
    assert dump(manifest).decode() == good


@pytest.mark.parametrize(
    "options",
    [
        replace(OPTIONS, file_bytes=1),
        replace(OPTIONS, min_bytes=-1),
        replace(OPTIONS, max_delay_ms=5),
        replace(OPTIONS, since_ms=9, until_ms=9),
    ],
)
def test_options_outside_their_limits(tmp_path: Path, options: Options) -> None:
    """Value and limit are named, nothing is written."""
    error = refusal(storage_in(tmp_path), FakeLog({0: 5}), options)
    assert error.code is ExportCode.BAD_OPTION
    assert not (tmp_path / "lake").exists()


# Runs.


def test_little_waits_until_it_is_enough_or_late(tmp_path: Path) -> None:
    """--min-bytes and --max-delay; and an empty run writes nothing."""
    storage = storage_in(tmp_path)
    patient = replace(OPTIONS, min_bytes=MIB, max_delay_ms=60_000)
    log = FakeLog({0: 5})
    assert run(storage, log, patient).manifest is None
    assert not storage.root.exists()
    log.is_overdue = True
    assert run(storage, log, patient).manifest is not None
    assert run(storage, log).manifest is None
    log.is_overdue, log.ends = False, {0: 30}
    assert run(storage, log, patient).manifest is not None


def test_a_first_run_between_two_times_and_the_next_one(tmp_path: Path) -> None:
    """--since is where the export begins, --until where this run ends."""
    storage, log = storage_in(tmp_path), FakeLog({0: 200})
    options = replace(OPTIONS, since_ms=DAY0 + DAY_MS, until_ms=DAY0 + 2 * DAY_MS)
    first = run(storage, log, options).manifest
    assert first is not None
    assert (first.start, first.end) == ({0: 40}, {0: 80})
    second = run(storage, log, replace(OPTIONS, since_ms=DAY0)).manifest
    assert second is not None
    assert (second.start, second.end) == ({0: 80}, {0: 200})


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    """And says what a run would do."""
    storage = storage_in(tmp_path)
    plan = plan_only(storage, FakeLog({0: 25}), OPTIONS, NOW_MS).plan
    assert plan is not None
    assert sum(piece.end - piece.start for piece in plan.pieces) == 25
    assert not storage.root.exists()


def test_accepted_loss_is_recorded(tmp_path: Path) -> None:
    """Before the plan, during the run, and all of a piece; the rest is there."""
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 10}))
    accepting = replace(OPTIONS, accept_data_loss=True)
    log = FakeLog({0: 60}, minimums={0: 12}, trimmed_after_freeze={0: 31})
    manifest = run(storage, log, accepting).manifest
    assert manifest is not None
    lost = sorted(at for gap in manifest.gaps for at in range(gap.start, gap.end))
    assert lost == [*range(10, 31)]
    rows = read_export(storage.root).read().to_pylist()
    assert sorted(row["queue_offset"] for row in rows) == [*range(10), *range(31, 60)]
    assert upkeep.verify(storage).problems == ()


# Upkeep.


def test_verification_finds_what_is_wrong(tmp_path: Path) -> None:
    """A missing file, a changed one, rows that the log has otherwise: all of it."""
    storage, log = storage_in(tmp_path), FakeLog({0: 10, 1: 10, 2: 10})
    run(storage, log)
    assert upkeep.verify(storage, log).problems == ()
    first, second, _ = read_export(storage.root).files
    storage.path(first.path).unlink()
    data = bytearray(storage.path(second.path).read_bytes())
    data[len(data) // 8] ^= 0x55
    storage.path(second.path).write_bytes(data)
    found = upkeep.verify(storage, replace(log, records_per_day=41))
    codes = [problem.code for problem in found.problems]
    assert codes == [ExportCode.DAMAGED, ExportCode.DAMAGED, ExportCode.WRONG_ROWS]
    assert found.files == 3


def test_a_file_in_the_folder_of_another_day_is_found(tmp_path: Path) -> None:
    """Its rows are all there, and whoever looks for them by day misses them."""

    class Misdated(FakeLog):
        def freeze(self, request: FreezeRequest) -> FrozenLog:
            frozen = super().freeze(request)
            whole = ((0, day_of(DAY0)),)
            return replace(frozen, queues=tuple(replace(q, days=whole) for q in frozen.queues))

    storage = storage_in(tmp_path)
    run(storage, Misdated({0: 50}), replace(OPTIONS, file_bytes=64 * MIB))
    (problem,) = upkeep.verify(storage).problems
    assert "stored on 2024-10-04 to 2024-10-05" in problem.what


def test_collection_keeps_what_anybody_needs(tmp_path: Path) -> None:
    """Live files, the young, the foreign, while a plan is open every file; the rest goes."""
    storage, log = storage_in(tmp_path), FakeLog({0: 25, 1: 5})
    run(storage, log)
    before = {entry.path for entry in read_export(storage.root).files}
    log.ends = {0: 31, 1: 9}
    plan = plan_only(storage, log, OPTIONS, NOW_MS).plan
    assert plan is not None
    forgotten = name_of("orders", Piece(9, 0, 4, "2024-10-04"))
    for name in (forgotten, "_dledger/tmp/1-ab", "mine.parquet"):
        storage.path(name).parent.mkdir(parents=True, exist_ok=True)
        storage.path(name).write_bytes(b"x")
    assert upkeep.collect(storage, 60_000, NOW_MS) == []
    late = 4_000_000_000_000
    assert upkeep.collect(storage, 60_000, late, dry_run=True) == ["_dledger/tmp/1-ab", forgotten]
    storage.put_if_absent("_dledger/plans/0000000001.json", dump(plan))
    assert upkeep.collect(storage, 60_000, late) == ["_dledger/tmp/1-ab"]
    run(storage, log)
    before |= {entry.path for entry in read_export(storage.root).files}
    assert upkeep.collect(storage, 60_000, late) == [forgotten]
    assert before | {"mine.parquet"} <= set(storage.walk("."))
    with pytest.raises(ExportError, match="BAD_OPTION"):
        upkeep.collect(storage, 1, late)
    with pytest.raises(ExportError, match="NOT_AN_EXPORT"):
        upkeep.collect(ExportStorage(tmp_path / "none"), 60_000, late)


def test_an_old_version_is_read_until_it_is_collected(tmp_path: Path) -> None:
    """A compaction changes no row; the grace time counts from when it was published."""
    storage, log = storage_in(tmp_path), FakeLog({0: 40, 1: 5})
    run(storage, log)
    before = read_export(storage.root).read()
    outcome = upkeep.compact(storage, HereEngine(), 1 << 30, lambda: 3_900_000_000_000)
    assert outcome.manifest is not None
    assert len(outcome.manifest.added) < len(outcome.manifest.removed)
    assert read_export(storage.root).read().equals(before)
    assert read_export(storage.root, 0).read().equals(before)
    assert upkeep.compact(storage, HereEngine(), 1 << 30, now).manifest is None
    assert upkeep.collect(storage, 60_000, 3_900_000_059_999) == []
    assert set(upkeep.collect(storage, 60_000, 3_900_000_060_000)) == set(outcome.manifest.removed)
    with pytest.raises(ExportError, match="VERSION_GONE"):
        read_export(storage.root, 0)
    assert read_export(storage.root).read().equals(before)
    with pytest.raises(ExportError, match="VERSION_UNKNOWN"):
        read_export(storage.root, 7)


def test_another_topics_compaction_is_not_finished(tmp_path: Path) -> None:
    """It is noticed before any work that the folder is not this export's."""
    storage, log = storage_in(tmp_path), FakeLog({0: 40})
    run(storage, log)
    plan = make_compaction(history.load(storage), 1 << 30)
    assert plan is not None
    storage.put_if_absent(plan_name(1), dump(plan))
    before = storage.walk(".")
    assert refusal(storage, log, replace(OPTIONS, topic="pays")).code is ExportCode.OTHER_TOPIC
    assert storage.walk(".") == before
    assert run(storage, log).plan == plan


# The local engine.


def test_a_pool_makes_what_one_process_makes(tmp_path: Path) -> None:
    """And counts every row; an error of a worker is the run's."""
    log = FakeLog({0: 25, 1: 9})
    seen: list[tuple[int, int, int]] = []
    pooled, alone = ExportStorage(tmp_path / "a"), ExportStorage(tmp_path / "b", QuickDisk())
    engine = LocalEngine(2, 0, lambda *done: seen.append(done))
    outcome = export_once(pooled, log, engine, OPTIONS, now)
    assert outcome.manifest == run(alone, log).manifest
    assert seen[-1][:2] == (4, 34)
    lost = FakeLog({0: 40, 1: 30}, trimmed_after_freeze={0: 26})
    with pytest.raises(ExportError, match="DATA_LOSS"):
        export_once(pooled, lost, engine, OPTIONS, now)
    away = FakeLog({0: 25, 1: 9}, is_away=True)
    with pytest.raises(ClientError, match="NO_LEADER: nobody leads"):
        export_once(ExportStorage(tmp_path / "c"), away, engine, OPTIONS, now)
