"""`path=`: a stopped member's folder read in place of the cluster, without Java.

Goal: exactly what the saved state names is handed out, whatever else lies in the files; and what
cannot be read is refused by a stable name, with file and position. Method: folders made by the
product's own log and state (`tests/unit/reading/data_folder.py`), read by the data source's readers
as Spark's workers call them; each partition travels pickled.
"""

import errno
import fcntl
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from dledger.state.command import CommitOffset, CommitOffsets, DeleteTopic, Trim
from dledger_broker import offline_reading
from dledger_broker.offline import EntryFound, segment_files, walk_segments
from dledger_client.arrow.schema import schema_of
from dledger_client.spark.batch import LogReader, PushingReader, reader_for
from dledger_client.spark.failures import DledgerReadError
from dledger_client.spark.options import parse
from dledger_client.spark.source import DledgerSource
from dledger_client.spark.stream import stream_reader_for
from dledger_proto.batch import Compression
from dledger_proto.entry import SEGMENT_HEADER_SIZE, parse_segment_name
from tests.unit.reading.data_folder import WrittenFolder, topic_id

BATCHES = 60
ORDERS = topic_id("orders")
Row = dict[str, Any]


@pytest.fixture
def written(tmp_path: Path) -> WrittenFolder:
    """A folder of several segments: 60 batches of 5 records over two queues, all committed."""
    folder = WrittenFolder(tmp_path / "m1" / "data" / "g1")
    folder.topic("orders")
    for number in range(BATCHES):
        bodies = [b"%d-%d" % (number, each) + bytes(60) for each in range(5)]
        folder.batch(ORDERS, number % 2, bodies)
    folder.save()
    return folder


def reader_of(folder: Path, **options: str) -> LogReader:
    given = {"path": str(folder), **options}
    if not {"topics", "topicspattern", "assign"} & set(given):
        given.setdefault("topic", "orders")
    found = reader_for(given, schema(given))
    assert isinstance(found, LogReader)
    return found


def schema(given: dict[str, str]) -> StructType:
    """Return the columns that options ask for, as Spark would hand them back."""
    return from_arrow_schema(schema_of(parse(given).columns))


def rows_of(reader: LogReader) -> list[Row]:
    """Return the rows of a reader, planned here and read as if elsewhere."""
    rows: list[Row] = []
    for partition in reader.partitions():
        travelled = pickle.loads(pickle.dumps((reader, partition)))
        for batch in travelled[0].read(travelled[1]):
            rows += batch.to_pylist()
    return rows


def read(folder: Path, **options: str) -> list[Row]:
    return rows_of(reader_of(folder, **options))


def bodies(rows: list[Row]) -> dict[int, list[bytes]]:
    """Return bodies by queue; offsets are checked to follow one another."""
    by_queue: dict[int, dict[int, bytes]] = {}
    for row in rows:
        queue = by_queue.setdefault(row["queue_id"], {})
        assert row["queue_offset"] not in queue
        queue[row["queue_offset"]] = row["body"]
    for queue in by_queue.values():
        assert sorted(queue) == list(range(min(queue), min(queue) + len(queue)))
    return {number: [queue[at] for at in sorted(queue)] for number, queue in by_queue.items()}


def refused(folder: Path, **options: str) -> str:
    """Return what a read is refused with."""
    with pytest.raises(DledgerReadError) as caught:
        read(folder, **options)
    return str(caught.value)


def test_every_committed_record_with_all_its_columns(written: WrittenFolder) -> None:
    """Several partitions, also compressed batches; nothing of the folder is changed by it."""
    packed = [b"%d" % number * 500 for number in range(8)]
    for codec in (Compression.ZSTD, Compression.LZ4):
        written.batch(ORDERS, 1, packed, codec)
    written.save()
    written.close()
    before = {path: path.stat().st_mtime_ns for path in written.path.rglob("*")}
    rows = read(written.path, maxBytesPerPartition="2k", includeProperties="true")
    found = bodies(rows)
    assert found == {queue: written.sent[ORDERS, queue] for queue in (0, 1)}
    assert len(reader_of(written.path, maxBytesPerPartition="2k").partitions()) > 4
    assert {(row["topic"], row["tag"], row["key"]) for row in rows} >= {("orders", "blue", "k0")}
    assert rows[0]["properties"] == [("city", "Zürich")]
    assert {path: path.stat().st_mtime_ns for path in written.path.rglob("*")} == before


def test_a_folder_above_and_a_uri_will_do(written: WrittenFolder) -> None:
    """`n1`, or `file:/.../n1` as SQL writes it, in place of `n1/data/g1`."""
    written.close()
    above = written.path.parents[1]
    sent = {queue: written.sent[ORDERS, queue] for queue in (0, 1)}
    assert bodies(read(above)) == sent
    assert bodies(read(above, path=above.as_uri())) == sent


def test_what_is_not_known_to_be_committed_is_not_read(written: WrittenFolder) -> None:
    """Sound entries behind the saved state, synced and on disk: they may never be committed."""
    sent = {queue: list(written.sent[ORDERS, queue]) for queue in (0, 1)}
    known = written.machine.applied_index
    written.batch(ORDERS, 0, [b"not yet", b"nor this"])
    written.sync()
    written.close()
    indexes = [e.entry.header.index for e in walk_segments(written.path) if type(e) is EntryFound]
    assert max(indexes) > known, "the log goes on behind the state"
    assert bodies(read(written.path)) == sent


def end_of_log(folder: Path) -> tuple[Path, int]:
    """Return the last segment, and where in it the log ends."""
    last = [each for each in walk_segments(folder) if type(each) is EntryFound][-1]
    base = parse_segment_name(last.path.name)
    assert base is not None
    return last.path, SEGMENT_HEADER_SIZE + last.entry.header.end_position - base


def test_a_torn_tail_is_nothing(written: WrittenFolder) -> None:
    """Half an entry behind what is committed, and a file whose making was cut off."""
    written.batch(ORDERS, 0, [b"torn"])
    written.sync()
    written.close()
    sent = {queue: written.sent[ORDERS, queue] for queue in (0, 1)}
    sent[0] = sent[0][:-1]
    segment, end = end_of_log(written.path)
    with segment.open("r+b") as file:
        file.seek(end - 30)
        file.write(b"\xa5" * 17)
    (segment.parent / "99999999999999999999.log").write_bytes(b"")
    assert bodies(read(written.path)) == sent


@pytest.mark.parametrize("way", ["flipped", "cut"])
def test_a_damaged_segment_is_refused_with_file_and_position(
    written: WrittenFolder, way: str
) -> None:
    """In a batch that is wanted; who reads around it reads."""
    written.close()
    segment = segment_files(written.path)[2]
    content = bytearray(segment.read_bytes())
    place = SEGMENT_HEADER_SIZE + 1_500
    if way == "flipped":
        content[place] ^= 1
    else:
        del content[place:]
    segment.write_bytes(content)
    says = refused(written.path)
    assert says.startswith(
        "DLEDGER_FOLDER_DAMAGED: " if way == "flipped" else "DLEDGER_FOLDER_INCOMPLETE: "
    )
    position = int(says.split("position ")[1].split(" ")[0].rstrip(":,"))
    base = parse_segment_name(segment.name)
    assert base is not None
    assert base <= position <= base + 1_500
    if way == "flipped":
        assert segment.name in says
        assert bodies(read(written.path, startingOffsets='{"0":140,"1":140}'))


def test_batches_of_another_log_are_refused(written: WrittenFolder) -> None:
    """Sound in themselves, and not what the state names: file and position are said."""
    written.close()
    rows = written.path / "log"
    other = WrittenFolder(written.path.parent / "g2")
    other.topic("orders")
    for number in range(BATCHES):
        bodies_ = [b"%d-%d" % (number, each) + bytes(60) for each in range(5)]
        other.batch(ORDERS, 1 - number % 2, bodies_)
    other.save()
    other.close()
    shutil.rmtree(rows)
    shutil.copytree(other.path / "log", rows)
    shutil.rmtree(other.path)
    says = refused(written.path)
    assert "DLEDGER_FOLDER_DAMAGED" in says
    assert "position " in says
    assert ".log" in says


def test_a_trimmed_head_begins_where_it_begins(written: WrittenFolder) -> None:
    """In the middle of a batch; what is wanted below is a loss, as everywhere."""
    written.command(Trim(ORDERS, 0, 52))
    written.save()
    written.close()
    found = bodies(read(written.path))
    assert found == {0: written.sent[ORDERS, 0][52:], 1: written.sent[ORDERS, 1]}
    wanted = '{"0":10,"1":0}'
    assert "OFFSET_OUT_OF_RANGE" in refused(written.path, startingOffsets=wanted)
    accepted = read(written.path, startingOffsets=wanted, failOnDataLoss="false")
    assert bodies(accepted) == found


def test_a_deleted_topic_is_not_there(written: WrittenFolder) -> None:
    """Nor are its records, though its batches lie in the log; the name may be another's."""
    written.topic("other")
    written.batch(topic_id("other"), 0, [b"stays"])
    written.command(DeleteTopic(ORDERS))
    written.save()
    assert written.machine.topic_by_name("orders") is None
    written.close()
    assert "DLEDGER_TOPIC_NOT_FOUND" in refused(written.path)
    assert bodies(read(written.path, topicspattern=".*")) == {0: [b"stays"]}


def test_edges_and_choices_are_those_of_the_cluster(written: WrittenFolder) -> None:
    """Offsets, times, a consumer group's progress, single queues."""
    written.command(CommitOffsets("readers", (CommitOffset(ORDERS, 0, 100),)))
    written.save()
    written.close()
    sent = [written.sent[ORDERS, queue] for queue in (0, 1)]
    part = read(written.path, startingOffsets='{"0":-2,"1":-1}', endingOffsets='{"0":7,"1":-1}')
    assert bodies(part) == {0: sent[0][:7]}
    group = read(written.path, startingOffsets="group:readers")
    assert bodies(group) == {0: sent[0][100:], 1: sent[1]}
    assert bodies(read(written.path, assign='{"orders": [1]}')) == {1: sent[1]}
    assert "QUEUE_NOT_FOUND" in refused(written.path, assign='{"orders": [7]}')
    every = read(written.path)
    times = sorted({row["store_timestamp"].timestamp() for row in every})
    middle = round(times[len(times) // 2] * 1_000)
    later = [row for row in every if row["store_timestamp"].timestamp() * 1_000 >= middle]
    assert 0 < len(later) < len(every)
    assert bodies(read(written.path, startingTimestamp=str(middle))) == bodies(later)


def test_filters_are_pushed_down(written: WrittenFolder) -> None:
    """What they leave out is not read."""
    written.close()
    reader = reader_of(written.path, pushdown="true")
    assert isinstance(reader, PushingReader)
    assert not list(
        reader.pushFilters([EqualTo(("queue_id",), 1), GreaterThanOrEqual(("queue_offset",), 120)])
    )
    assert bodies(rows_of(reader)) == {1: written.sent[ORDERS, 1][120:]}


def test_a_folder_in_use_is_refused(written: WrittenFolder) -> None:
    """By planning, and by a task whose plan was made before the member started."""
    assert "DLEDGER_FOLDER_IN_USE" in refused(written.path)
    assert str(written.path) in refused(written.path)
    written.close()
    reader = reader_of(written.path)
    (partition,) = reader.partitions()
    with (written.path / "LOCK").open("a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DledgerReadError, match="DLEDGER_FOLDER_IN_USE"):
            list(reader.read(partition))


def test_a_folder_that_changed_since_the_plan_is_refused(tmp_path: Path) -> None:
    """A member ran on it in between: its rows may lie elsewhere, its head may be trimmed."""
    written = WrittenFolder(tmp_path / "g1")
    written.topic("orders")
    written.batch(ORDERS, 0, [b"one"])
    written.save()
    copy = tmp_path / "copy"
    shutil.copytree(written.path, copy)
    reader = reader_of(copy)
    (partition,) = reader.partitions()
    written.batch(ORDERS, 0, [b"two"])
    written.save()
    written.close()
    shutil.rmtree(copy)
    shutil.copytree(written.path, copy)
    with pytest.raises(DledgerReadError, match=r"DLEDGER_FOLDER_CHANGED: .*run the query again"):
        list(reader.read(partition))
    shutil.rmtree(copy)
    with pytest.raises(DledgerReadError, match="DLEDGER_FOLDER_NOT_FOUND"):
        list(reader.read(partition))


def _remove_identity(folder: Path) -> None:
    (folder / "identity").unlink()


def _damage_identity(folder: Path) -> None:
    (folder / "identity").write_bytes(b"x" * 40)


def _remove_state(folder: Path) -> None:
    shutil.rmtree(folder / "state")


def _damage_state(folder: Path) -> None:
    path = folder / "state" / "data.mdb"
    content = bytearray(path.read_bytes())
    for at in range(2 * 4096 + 100, len(content), 512):
        content[at] ^= 0x10
    path.write_bytes(content)


def _older_state(folder: Path) -> None:
    """A data file behind its mark: the mark is of a later save."""
    path = folder / "state" / "data.mdb"
    content = bytearray(path.read_bytes())
    content[: 2 * 4096] = bytes(2 * 4096)
    path.write_bytes(content)


def _remove_segment(folder: Path) -> None:
    segment_files(folder)[1].unlink()


def _remove_first_segment(folder: Path) -> None:
    segment_files(folder)[0].unlink()


def _remove_log(folder: Path) -> None:
    for path in segment_files(folder):
        path.unlink()


def _damage_header(folder: Path) -> None:
    segment = segment_files(folder)[1]
    content = bytearray(segment.read_bytes())
    content[20] ^= 1
    segment.write_bytes(content)


BROKEN: list[tuple[Callable[[Path], None], str, str]] = [
    (_remove_identity, "FOLDER_INCOMPLETE", "identity is missing"),
    (_damage_identity, "FOLDER_DAMAGED", "identity"),
    (_remove_state, "FOLDER_INCOMPLETE", "no state was saved there"),
    (_damage_state, "FOLDER_DAMAGED", "state store"),
    (_older_state, "FOLDER_DAMAGED", "state store"),
    (_remove_segment, "FOLDER_INCOMPLETE", "no segment holds it"),
    (_remove_first_segment, "FOLDER_INCOMPLETE", "no segment holds it"),
    (_remove_log, "FOLDER_INCOMPLETE", "no segment holds it"),
    (_damage_header, "FOLDER_DAMAGED", ".log: position"),
]


@pytest.mark.parametrize(("breaks", "condition", "says"), BROKEN)
def test_what_cannot_be_read_is_refused_by_name(
    written: WrittenFolder, breaks: Callable[[Path], None], condition: str, says: str
) -> None:
    """One condition, the file, what to do."""
    written.close()
    assert read(written.path)
    breaks(written.path)
    text = refused(written.path)
    assert text.startswith(f"DLEDGER_{condition}: ")
    assert says in text


def test_a_place_without_a_folder(tmp_path: Path) -> None:
    """Nothing there, a folder of something else."""
    assert "DLEDGER_FOLDER_NOT_FOUND" in refused(tmp_path / "none")
    assert "holds no data folder" in refused(tmp_path)


def test_a_later_format_says_so(written: WrittenFolder) -> None:
    """Which is no damage."""
    written.close()
    mark = written.path / "state" / "mark"
    assert mark.exists()
    from dledger.files import OsFileSystem
    from dledger.state import lmdb_mark
    from dledger.state.lmdb_mark import read_mark, write_mark

    found = read_mark(str(mark.parent))
    assert found is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lmdb_mark, "_VERSION", 2)
        write_mark(OsFileSystem(), str(mark.parent), found)
    assert "DLEDGER_FOLDER_NEWER: " in refused(written.path)


def test_files_that_may_not_be_read(
    written: WrittenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal of the system is no damage."""
    written.close()
    closed = str(segment_files(written.path)[1])
    opened = os.open

    def guarded(path: str | Path, flags: int) -> int:
        if str(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), closed)
        return opened(path, flags)

    monkeypatch.setattr(os, "open", guarded)
    says = refused(written.path)
    assert says.startswith("DLEDGER_FOLDER_UNREADABLE: ")
    assert closed in says


@pytest.mark.parametrize("trims", [False, True])
def test_a_member_may_start_while_a_task_reads(
    written: WrittenFolder, monkeypatch: pytest.MonkeyPatch, trims: bool
) -> None:
    """What is read stays right; if it takes away what is wanted, it is named as the reason."""
    monkeypatch.setattr(offline_reading, "READ_BYTES", 2_000)
    written.close()
    sent = {queue: written.sent[ORDERS, queue] for queue in (0, 1)}
    reader = reader_of(written.path)
    (partition,) = reader.partitions()
    batches = reader.read(partition)
    rows = next(batches).to_pylist()
    with (written.path / "LOCK").open("a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not trims:
            for batch in batches:
                rows += batch.to_pylist()
            assert bodies(rows) == sent
            return
        _remove_log(written.path)
        with pytest.raises(DledgerReadError, match="DLEDGER_FOLDER_IN_USE"):
            list(batches)


def test_several_groups_are_read_together(tmp_path: Path) -> None:
    """A topic over two groups; with one of them missing, or a group twice, it is refused."""
    members = tmp_path / "members"
    written = {
        group: WrittenFolder(members / group / "data", group, f"m-{group}")
        for group in ("g1", "g2")
    }
    for group, folder in written.items():
        folder.topic("orders", ("g1", 1), ("g2", 2))
        for queue in {"g1": (0,), "g2": (1, 2)}[group]:
            folder.batch(ORDERS, queue, [b"%d" % queue] * 3)
        folder.save()
        folder.close()
    assert bodies(read(members)) == {queue: [b"%d" % queue] * 3 for queue in range(3)}
    alone = members / "g1"
    says = refused(alone)
    assert says.startswith("DLEDGER_FOLDER_INCOMPLETE: orders/1 is of group g2")
    assert bodies(read(alone, assign='{"orders": [0]}')) == {0: [b"0"] * 3}
    shutil.copytree(members / "g1", members / "g1-again")
    says = refused(members)
    assert says.startswith("DLEDGER_FOLDER_AMBIGUOUS: ")
    assert "g1-again" in says


def test_a_stream_has_no_path(tmp_path: Path) -> None:
    """Nothing would ever come."""
    given = {"path": str(tmp_path), "topic": "orders"}
    with pytest.raises(DledgerReadError, match="path: not of a stream"):
        stream_reader_for(given, schema(given))


def test_without_the_broker_s_packages_the_remedy_is_named() -> None:
    """Whoever installed the extra `spark` alone is told what reading folders needs."""
    program = (
        "import sys; sys.modules['lmdb'] = None\n"
        "from dledger_client.spark.options import parse\n"
        "from dledger_client.spark.batch import LogReader\n"
        "LogReader(parse({'path': '/nowhere', 'topic': 't'})).partitions()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "DLEDGER_FOLDER_UNSUPPORTED: " in ended.stderr
    assert "lmdb" in ended.stderr
    assert "pip install 'dledger[broker,spark]'" in ended.stderr


def test_the_source_hands_its_options_on(written: WrittenFolder) -> None:
    """As Spark makes one: names in lower case."""
    written.close()
    given = {"path": str(written.path), "topic": "orders", "columns": "body"}
    source = DledgerSource(given)
    assert source.schema() == "body BINARY"
    reader = source.reader(schema(given))
    assert isinstance(reader, LogReader)
    assert len(rows_of(reader)) == 5 * BATCHES
