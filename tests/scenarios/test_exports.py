"""Exports under deaths, power cuts and rivals. Small enough to catch known bugs with.

Goal: whatever dies at whatever call, and whoever else exports into the same folder, a finishing run
leaves every committed record in the newest version once, and each version was published once.
Method: a log in memory, a disk that dies before or behind each of its calls, a schedule of two
exporters that is drawn in full.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from dledger_client.export import ExportCode, ExportError, read_export, upkeep
from dledger_client.export import run as protocol
from dledger_client.export.files.storage import Disk, ExportStorage
from dledger_client.export.layout import Piece, name_of
from dledger_client.export.manifests import history
from dledger_client.export.manifests.checkpoint import CHECKPOINTS
from dledger_client.export.manifests.records import Gap, Identity, manifest_name
from dledger_client.export.planning import MIB, Options
from dledger_client.export.run import Outcome
from dledger_client.export.source import Compacted
from dledger_client.export.task import Made, Work
from tests.scenarios.rivals import race, race_of
from tests.unit.export.fakes import Died, FakeLog, FaultyDisk, HereEngine, QuickDisk, body_of

OPTIONS = Options("orders", file_bytes=MIB)
NOW_MS = 1_700_000_000_000


def now() -> int:
    return NOW_MS


@contextmanager
def folder() -> Iterator[Path]:
    """Yield where an export will be."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made) / "lake"


def run(root: Path, log: FakeLog, disk: Disk | None = None) -> Outcome:
    return protocol.export_once(
        ExportStorage(root, disk or QuickDisk()), log, HereEngine(), OPTIONS, now
    )


def finish(root: Path, log: FakeLog) -> None:
    """Run until there is nothing new."""
    while run(root, log).manifest is not None:
        pass


def check(root: Path, log: FakeLog) -> None:
    """Every record of the log, once, as it was stored; and manifests that follow one another."""
    rows = read_export(root).read().to_pylist()
    found = [(row["queue_id"], row["queue_offset"]) for row in rows]
    wanted = [(queue, offset) for queue, end in log.ends.items() for offset in range(end)]
    assert len(found) == len(set(found)), "a record is there twice"
    assert sorted(found) == wanted, f"{len(found)} of {len(wanted)} records"
    assert all(row["body"] == body_of(row["queue_id"], row["queue_offset"]) for row in rows)
    version, whole = (
        history.load(ExportStorage(root)),
        history.load(ExportStorage(root), whole=True),
    )
    assert replace(version, removed_ms={}) == replace(whole, removed_ms={}), "a checkpoint is wrong"
    ends: dict[int, int] = {}
    for number in range(version.last.number + 1):
        manifest = history.manifest_of(ExportStorage(root), number)
        assert ends.items() <= dict(manifest.start).items(), "a version begins where none ended"
        ends = dict(manifest.end)
        plan = history.open_plan(ExportStorage(root), manifest.number)
        assert plan is not None
        assert (plan.start, plan.end) == (manifest.start, manifest.end), "a version of no plan"


def grown(log: FakeLog) -> FakeLog:
    return FakeLog({queue: end + 9 for queue, end in log.ends.items()} | {7: 3})


def calls_of_a_run(log: FakeLog) -> int:
    with folder() as root:
        disk = FaultyDisk(root.parent)
        run(root, log, disk)
        return len(disk.calls)


def die_at(half_step: int, log: FakeLog, *, power_cut: bool) -> None:
    """Die there in the first run, go on with a log that has grown since."""
    with folder() as root:
        disk = FaultyDisk(root.parent)
        disk.die_at = half_step
        with suppress(Died):
            run(root, log, disk)
        if power_cut:
            disk.power_cut()
        later = grown(log)
        finish(root, later)
        check(root, later)


def test_a_run_that_dies_at_any_call_is_finished_by_the_next() -> None:
    """Before and behind each call; files that were made are not made again wrongly."""
    log = FakeLog({0: 21, 1: 9})
    for half_step in range(2 * calls_of_a_run(log)):
        die_at(half_step, log, power_cut=False)


def test_a_power_cut_at_any_call_loses_nothing_that_is_published() -> None:
    """What was not synced is gone: names from folders, halves of files."""
    log = FakeLog({0: 12, 1: 3})
    for half_step in range(2 * calls_of_a_run(log)):
        die_at(half_step, log, power_cut=True)


def test_what_is_published_survives_a_power_cut_right_behind_it() -> None:
    """The manifest, and every file that it names."""
    with folder() as root:
        log = FakeLog({0: 25, 1: 3})
        disk = FaultyDisk(root.parent)
        run(root, log, disk)
        disk.power_cut()
        check(root, log)


def test_a_manifest_built_on_a_rivals_files_survives_a_power_cut() -> None:
    """Who reuses a file cannot know that its writer lived to sync the folder: it syncs itself."""
    log = FakeLog({0: 12})
    half_steps = 2 * calls_of_a_run(log)
    for half_step in range(half_steps):
        with folder() as root:
            disk = FaultyDisk(root.parent)
            disk.die_at = half_step
            with suppress(Died):
                run(root, log, disk)
            disk.dead, disk.die_at = False, -1  # another process, the same disk
            disk.calls.clear()
            run(root, log, disk)
            disk.power_cut()
            check(root, log)


def test_an_open_plan_is_finished_and_not_replaced() -> None:
    """The plan of a run that died is adopted as it is, though the log has grown since."""
    with folder() as root:
        log = FakeLog({0: 25})
        disk = FaultyDisk(root.parent)
        storage = ExportStorage(root, disk)
        plan = _die_behind_the_plan(storage, disk, log)
        later = grown(log)
        outcome = run(root, later)
        assert outcome.adopted
        assert outcome.plan == plan, "another plan than the one that was open"
        assert outcome.manifest is not None
        assert dict(outcome.manifest.end) == {0: 25}
        finish(root, later)
        check(root, later)


def _die_behind_the_plan(storage: ExportStorage, disk: FaultyDisk, log: FakeLog) -> object:
    half_step = 0
    while history.open_plan(ExportStorage(storage.root), 0) is None:
        disk.die_at = half_step
        with suppress(Died):
            protocol.export_once(storage, log, HereEngine(), OPTIONS, now)
        disk.dead = False
        disk.calls.clear()
        half_step += 2
    return history.open_plan(ExportStorage(storage.root), 0)


def test_two_exporters_at_once_publish_each_version_once() -> None:
    """Every schedule with two changes of who runs, of two runs from an empty folder.

    The log grows whenever it is looked at: a version of one plan and files of the other would show.
    """
    count = 0
    for change, back in _schedules():
        with folder() as root:
            log = FakeLog({0: 11}, grows=2)
            outcomes = race(root, log, change, back, OPTIONS, now)
            published = [each for each in outcomes if each.ours]
            numbers = [each.manifest.number for each in published if each.manifest]
            assert len(numbers) == len(set(numbers)), "one version was published by both"
            log.grows = 0
            finish(root, log)
            check(root, log)
            count += 1
    assert count > 100


def _schedules(calls: int = 45, sparser: int = 1) -> Iterator[tuple[int, int]]:
    """Yield how many calls the first makes, then the second, before the first goes on."""
    for change in range(0, calls, 2 * sparser):
        for back in range(1, calls, 3 * sparser):
            yield change, back


def test_a_compaction_and_an_export_at_once() -> None:
    """Every schedule with two changes: both publish, or one finishes what the other planned."""

    def compact(storage: ExportStorage) -> Outcome | None:
        try:
            return upkeep.compact(storage, HereEngine(), 1 << 30, now)
        except ExportError as error:
            if error.code is not ExportCode.CONFLICT:
                raise
            return None  # the export planned first

    log = FakeLog({0: 21, 1: 9})
    later = grown(log)

    def export(storage: ExportStorage) -> Outcome | None:
        return protocol.export_once(storage, later, HereEngine(), OPTIONS, now)

    kinds: set[str] = set()
    for change, back in _schedules(60, 3):
        with folder() as root:
            run(root, log)
            outcomes = race_of(root, change, back, export, compact)
            published = [each for each in outcomes if each is not None and each.ours]
            numbers = [each.manifest.number for each in published if each.manifest]
            assert len(numbers) == len(set(numbers)), "one version was published by both"
            kinds |= {each.manifest.kind for each in published if each.manifest}
            finish(root, later)
            check(root, later)
    assert kinds == {"export", "compact"}


def collect_now(storage: ExportStorage) -> None:
    upkeep.collect(storage, upkeep.GRACE_MS_MIN, int(time.time() * 1_000))


def leave_old_files(root: Path, log: FakeLog, later: FakeLog) -> None:
    """Export once, and die in the second run when all files are made; everything is old."""
    run(root, log)
    with suppress(Died):
        protocol.export_once(ExportStorage(root, QuickDisk()), later, DyingEngine(), OPTIONS, now)
    assert history.last_number(ExportStorage(root)) == 0
    for name in ExportStorage(root).walk("."):
        os.utime(root / name, (1, 1))


def test_a_collection_takes_nothing_that_an_open_plan_will_name() -> None:
    """What an export that died left is reused; a collection between that and the manifest."""
    log = FakeLog({0: 21, 1: 9})
    later = grown(log)
    with folder() as root:
        leave_old_files(root, log, later)
        storage = ExportStorage(root, QuickDisk())
        engine = BetweenEngine(lambda: collect_now(storage))
        assert protocol.export_once(storage, later, engine, OPTIONS, now).reused
        finish(root, later)
        check(root, later)


def test_a_collection_and_an_export_at_once() -> None:
    """Every schedule with two changes, over what an export that died left."""
    log = FakeLog({0: 21, 1: 9})
    later = grown(log)

    def export(storage: ExportStorage) -> None:
        protocol.export_once(storage, later, HereEngine(), OPTIONS, now)

    for change in range(12):
        for back in range(1, 16, 2):
            with folder() as root:
                leave_old_files(root, log, later)
                race_of(root, change, back, export, collect_now)
                finish(root, later)
                check(root, later)


def test_a_collection_takes_nothing_that_a_version_names() -> None:
    """However old: age is no sign of a file that is not needed."""
    with folder() as root:
        log = FakeLog({0: 21, 1: 9})
        run(root, log)
        upkeep.collect(ExportStorage(root), upkeep.GRACE_MS_MIN, 1 << 60)
        check(root, log)


def test_an_older_version_is_kept_for_the_grace_time_behind_its_compaction() -> None:
    """A compaction may take long: its readers' time begins when it is published."""
    with folder() as root:
        log = FakeLog({0: 21})
        run(root, log)
        clock = iter([NOW_MS, NOW_MS + 10**10, NOW_MS + 2 * 10**10])
        engine = BetweenEngine(lambda: next(clock))
        outcome = upkeep.compact(ExportStorage(root), engine, 1 << 30, lambda: next(clock))
        assert outcome.manifest is not None
        for name in outcome.manifest.removed:
            os.utime(root / name, (1, 1))
        just_then = outcome.manifest.time_ms + upkeep.GRACE_MS_MIN - 1
        assert upkeep.collect(ExportStorage(root), upkeep.GRACE_MS_MIN, NOW_MS + 10**10) == []
        assert upkeep.collect(ExportStorage(root), upkeep.GRACE_MS_MIN, just_then) == []
        assert read_export(root, 0).rows == 21


class DyingEngine(HereEngine):
    """Makes all files, and takes the run with it."""

    def run(self, work: Work, pieces: Sequence[Piece]) -> list[Made]:
        super().run(work, pieces)
        raise Died


class BetweenEngine(HereEngine):
    """Lets something happen when all files are made."""

    def __init__(self, between: Callable[[], object]) -> None:
        self._between = between

    def run(self, work: Work, pieces: Sequence[Piece]) -> list[Made]:
        made = super().run(work, pieces)
        self._between()
        return made


class ForgetfulEngine(HereEngine):
    """Loses a file, as a scheduler with a bug would."""

    def run(self, work: Work, pieces: Sequence[Piece]) -> list[Made]:
        return super().run(work, pieces)[1:]


def test_a_version_that_lacks_a_range_is_not_published() -> None:
    """Whatever an engine returns: files and gaps are all that was planned, each offset once."""
    with folder() as root:
        storage, log = ExportStorage(root, QuickDisk()), FakeLog({0: 21})
        engine = ForgetfulEngine()
        refused(
            lambda: protocol.export_once(storage, log, engine, OPTIONS, now), ExportCode.CONFLICT
        )
        assert history.last_number(storage) == -1


def test_another_log_is_never_added_to_an_export() -> None:
    """Of another cluster, or of a topic that was made anew under the same name."""
    with folder() as root:
        log = FakeLog({0: 9})
        run(root, log)
        foreign = replace(log.identity, cluster="c2")
        for identity in (foreign, _remade(log)):
            with pytest.raises(ExportError):
                run(root, FakeLog({0: 12}, identity=identity))
        assert history.last_number(ExportStorage(root)) == 0


def test_rows_out_of_order_are_in_no_file() -> None:
    """A record twice and another not at all, within the bounds of the range."""

    class Unsorted(FakeLog):
        def read(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
            for batch in super().read(piece, columns):
                assert not isinstance(batch, Compacted)
                yield batch.take(pa.array([0, 0, *range(2, batch.num_rows)]))

    with folder() as root:
        refused(lambda: run(root, Unsorted({0: 9}, batch_rows=3)), ExportCode.DAMAGED)


def test_a_file_that_is_not_whole_is_made_again() -> None:
    """A name with other bytes behind it, of whatever origin, is never trusted."""
    log = FakeLog({0: 9})
    name = name_of("orders", Piece(0, 0, 9, "2024-10-04"))
    with folder() as root:
        run(root, log)
        whole = (root / name).read_bytes()
    for broken in (b"", whole[: len(whole) // 2], whole[:-1], _flipped(whole)):
        with folder() as root:
            (root / name).parent.mkdir(parents=True)
            (root / name).write_bytes(broken)
            run(root, log)
            check(root, log)


def _flipped(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[len(data) // 8] ^= 0x55
    return bytes(changed)


def test_another_ones_file_is_refused_and_left_alone() -> None:
    """Whole, of the same name, and of another topic's life: never reused, never replaced."""
    with folder() as root, folder() as other:
        mine = FakeLog({0: 9})
        run(other, FakeLog({0: 9}, identity=_remade(mine)))
        (piece,) = history.load(ExportStorage(other)).files.values()
        (root / piece.path).parent.mkdir(parents=True)
        before = (other / piece.path).read_bytes()
        (root / piece.path).write_bytes(before)
        refused(lambda: run(root, mine), ExportCode.CONFLICT)
        assert (root / piece.path).read_bytes() == before
        assert history.last_number(ExportStorage(root)) == -1


def _remade(log: FakeLog) -> Identity:
    return replace(log.identity, topic_id="11" * 16)


def refused(call: Callable[[], object], code: ExportCode) -> None:
    with pytest.raises(ExportError) as error:
        call()
    assert error.value.code is code, error.value


def test_a_compaction_that_dies_at_any_call_changes_no_row() -> None:
    """It is a plan like any other; the next run finishes it, then exports what came since.

    A death behind its manifest leaves it without a checkpoint, which nobody misses.
    """
    log = FakeLog({0: 21, 1: 9})
    later = grown(log)
    left: set[tuple[int, int]] = set()
    for half_step in range(2 * calls_of_a_compaction(log)):
        with folder() as root:
            run(root, log)
            storage = ExportStorage(root, disk := FaultyDisk(root.parent))
            disk.die_at = half_step
            with suppress(Died):
                upkeep.compact(storage, HereEngine(), 1 << 30, now)
            disk.power_cut()
            left.add((history.last_number(storage), len(storage.names(CHECKPOINTS))))
            finish(root, later)
            check(root, later)
    assert left == {(0, 0), (1, 0), (1, 1)}


def calls_of_a_compaction(log: FakeLog) -> int:
    with folder() as root:
        run(root, log)
        disk = FaultyDisk(root.parent)
        upkeep.compact(ExportStorage(root, disk), HereEngine(), 1 << 30, now)
        return len(disk.calls)


def test_trimmed_records_are_never_passed_over_in_silence() -> None:
    """Refused, before and during a run; or accepted, and the gap is in the manifest."""
    with folder() as root:
        run(root, FakeLog({0: 10}))
        log = FakeLog({0: 20}, minimums={0: 12})
        refused(lambda: run(root, log), ExportCode.DATA_LOSS)
        assert history.last_number(ExportStorage(root)) == 0


def test_a_queue_that_came_later_is_wanted_from_its_first_record() -> None:
    """What was trimmed of it is lost, unless it was stored before the export's own beginning."""
    with folder() as root:
        run(root, FakeLog({0: 10}, minimums={0: 3}))
        log = FakeLog({0: 10, 1: 9}, minimums={0: 3, 1: 4})
        refused(lambda: run(root, log), ExportCode.DATA_LOSS)
        accepting = replace(OPTIONS, accept_data_loss=True)
        outcome = protocol.export_once(
            ExportStorage(root, QuickDisk()), log, HereEngine(), accepting, now
        )
        assert outcome.manifest is not None
        assert outcome.manifest.gaps == (Gap(1, 0, 4),)
        assert dict(outcome.manifest.start) == {0: 10, 1: 0}
        assert upkeep.verify(ExportStorage(root)).problems == ()


def test_an_end_that_is_not_what_was_written_is_believed_by_nobody() -> None:
    """A digit of it lost or repeated records in silence, if it were."""
    with folder() as root:
        run(root, FakeLog({0: 25}))
        path = ExportStorage(root).path(manifest_name(0))
        path.write_text(path.read_text().replace('"0": 25', '"0": 27'))
        refused(lambda: run(root, FakeLog({0: 40})), ExportCode.DAMAGED)
        refused(lambda: read_export(root), ExportCode.DAMAGED)


def test_versions_of_two_exports_are_not_mixed() -> None:
    """A manifest that was copied from another folder, whole in itself."""
    with folder() as root, folder() as other:
        for each, first in ((root, 25), (other, 20)):
            run(each, FakeLog({0: first}))
            run(each, FakeLog({0: 40}))
        name = manifest_name(1)
        ExportStorage(root).path(name).write_bytes(ExportStorage(other).path(name).read_bytes())
        refused(lambda: read_export(root), ExportCode.DAMAGED)
