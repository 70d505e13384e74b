"""Collection: what nobody needs any more, and since when."""

from collections.abc import Sequence
from pathlib import Path

from dledger_client.export import upkeep
from dledger_client.export.files.storage import TEMPORARY
from dledger_client.export.layout import Piece
from dledger_client.export.task import Made, Work
from tests.unit.export.fakes import FakeLog, HereEngine
from tests.unit.export.test_files import run, storage_in


def test_the_grace_time_counts_from_when_a_compaction_was_published(tmp_path: Path) -> None:
    """Not from its beginning: readers of the version before may have begun just now."""
    storage, log = storage_in(tmp_path), FakeLog({0: 40})
    run(storage, log)
    begun, published = 3_900_000_000_000, 3_900_009_000_000
    clock = [begun]

    class SlowEngine(HereEngine):
        def run(self, work: Work, pieces: Sequence[Piece]) -> list[Made]:
            clock[0] = published
            return super().run(work, pieces)

    outcome = upkeep.compact(storage, SlowEngine(), 1 << 30, lambda: clock[0])
    assert outcome.manifest is not None
    assert outcome.manifest.time_ms == published
    assert upkeep.collect(storage, 60_000, published + 59_999) == []
    removed = set(outcome.manifest.removed)
    assert set(upkeep.collect(storage, 60_000, published + 60_000)) == removed


def test_what_somebody_is_writing_is_not_collected(tmp_path: Path) -> None:
    """However long ago its last byte was; what a dead process left is. A folder is nobody's."""
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 5}))
    storage.path(f"{TEMPORARY}/folder").mkdir()
    left = f"{TEMPORARY}/1-dead"
    storage.path(left).write_bytes(b"PAR1")
    with storage.stage(is_slow=True) as staged:
        assert upkeep.collect(storage, 60_000, 3_900_000_000_000) == [left]
        staged.file.write(b"goes on")
        assert storage.install(staged, "topic=orders/here")
