"""An export's folder that is not what it should be: lost records, strangers' files.

Goal: nothing that somebody may need is deleted, and no version names what readers cannot find.
Method: as in `test_exports.py`.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dledger_client.export import ExportCode, ExportError, read_export, upkeep
from dledger_client.export import run as protocol
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import Piece, name_of
from dledger_client.export.manifests import history
from dledger_client.export.manifests.checkpoint import checkpoint_name
from dledger_client.export.task import Made, Work
from tests.scenarios.test_exports import (
    OPTIONS,
    BetweenEngine,
    check,
    finish,
    folder,
    now,
    refused,
    run,
)
from tests.unit.export.fakes import FakeLog, HereEngine, QuickDisk


def test_a_collection_without_any_record_takes_nothing() -> None:
    """Nobody can tell then which files are needed: `_dledger` was lost, or the path is wrong."""
    with folder() as root:
        log = FakeLog({0: 21, 1: 9})
        run(root, log)
        records = root.parent / "records"
        (root / "_dledger").rename(records)
        with suppress(ExportError):
            upkeep.collect(ExportStorage(root), upkeep.GRACE_MS_MIN, 1 << 60)
        records.rename(root / "_dledger")
        check(root, log)


class ElsewhereEngine(HereEngine):
    """Makes files where its host has another folder under the same name."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def run(self, work: Work, pieces: Sequence[Piece]) -> list[Made]:
        return super().run(replace(work, storage=ExportStorage(self._root, QuickDisk())), pieces)


def conflicts(root: Path, log: FakeLog, engine: protocol.Engine) -> None:
    """Export with an engine whose files are not published; finish with one whose files are."""
    storage = ExportStorage(root, QuickDisk())
    refused(lambda: protocol.export_once(storage, log, engine, OPTIONS, now), ExportCode.CONFLICT)
    assert history.last_number(storage) == -1
    finish(root, log)
    check(root, log)


def test_files_that_lie_elsewhere_are_in_no_version() -> None:
    """A folder that hosts do not share: what a task has made is not where readers look."""
    with folder() as root, folder() as other:
        conflicts(root, FakeLog({0: 21}), ElsewhereEngine(other))


def test_a_collection_takes_nothing_of_another_topic() -> None:
    """Somebody moved two exports into one folder: what has no manifest here may be all he has."""
    with folder() as root:
        run(root, FakeLog({0: 5}))
        storage = ExportStorage(root, QuickDisk())
        name = read_export(root).files[0].path.replace("topic=orders", "topic=other")
        storage.put_if_absent(name, b"somebody's")
        later = int(time.time() * 1_000) + 10 * 86_400_000
        assert upkeep.collect(storage, 86_400_000, later) == []
        assert storage.read(name) == b"somebody's"


def test_a_checkpoint_of_another_export_is_not_believed() -> None:
    """One that was copied, whole in itself, of the same log: it names files that are not here."""
    with folder() as root, folder() as other:
        log = FakeLog({0: 21})
        for each, files in ((root, 2), (other, 3)):
            run(each, log)
            merged = sum(entry.bytes for entry in read_export(each).files[:files])
            upkeep.compact(ExportStorage(each), HereEngine(), merged, now)
        name = checkpoint_name(1)
        mine, foreign = (ExportStorage(each).path(name).read_bytes() for each in (root, other))
        assert mine != foreign
        ExportStorage(root).path(name).write_bytes(foreign)
        check(root, log)


def test_a_rivals_other_bytes_are_not_published_as_ours() -> None:
    """Two replace a damaged file at once, and their libraries write the same rows differently."""
    with folder() as root:
        storage, log = ExportStorage(root, QuickDisk()), FakeLog({0: 9})
        name = name_of("orders", Piece(0, 0, 9, "2024-10-04"))
        storage.put_if_absent(name, b"PAR1")

        def replace_it() -> None:
            data = (root / name).read_bytes()
            (root / name).write_bytes(data[:-1] + b"2")

        engine = BetweenEngine(replace_it)
        conflicts(root, log, engine)
        assert upkeep.verify(storage, log).problems == ()
