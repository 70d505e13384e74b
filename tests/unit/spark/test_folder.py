"""`path=`: a stopped member's folder read in place of the cluster, without Java.

Goal: exactly what the saved state names is handed out, whatever else lies in the files. Method:
folders made by the product's own log and state (`tests/unit/reading/data_folder.py`).
"""

import shutil
from pathlib import Path

from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual

from dledger.state.offsets import CommitOffset
from dledger.state.progress.commits import CommitOffsets
from dledger.state.queues.carry import CarryForward
from dledger.state.queues.copies import FIRST
from dledger.state.queues.trim import Trim
from dledger.state.topics.commands import DeleteTopic
from dledger.types import Position
from dledger_broker.carrying.carrying import read_copies
from dledger_client.spark.batch import LogReader, PushingReader
from dledger_client.spark.source import DledgerSource
from dledger_offline.folder import EntryFound, walk_segments
from dledger_proto.batch.codec import Compression
from dledger_proto.entry import SEGMENT_HEADER_SIZE, parse_segment_name
from tests.unit.reading.data_folder import WrittenFolder, topic_id
from tests.unit.spark.folders import (
    BATCHES,
    ORDERS,
    bodies,
    read,
    reader_of,
    refused,
    rows_of,
    schema,
)


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


def test_what_is_compacted_is_passed_over(written: WrittenFolder) -> None:
    """Wherever partitions begin and end; a gone row has no batch to read."""
    gone = [written.compact(ORDERS, 0, row, rows) for row, rows in ((25, 1), (3, 7), (0, 2))]
    assert gone == [(125, 130), (15, 50), (0, 10)]
    written.batch(ORDERS, 0, [b"newest"])
    written.save()
    written.close()
    sent = dict(enumerate(written.sent[ORDERS, 0]))
    left = {at: body for at, body in sent.items() if not any(a <= at < b for a, b in gone)}
    for options in ({}, {"maxBytesPerPartition": "1k"}, {"maxRecordsPerPartition": "7"}):
        rows = read(written.path, assign='{"orders": [0]}', **options)
        assert len(rows) == len(left)
        assert {row["queue_offset"]: row["body"] for row in rows} == left
    edges = {"startingOffsets": '{"orders": {"0": 20}}', "endingOffsets": '{"orders": {"0": 40}}'}
    assert read(written.path, assign='{"orders": [0]}', **edges) == []


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
    assert written.machine.queries.topic_by_name("orders") is None
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
    ends = f'{{"0": {middle}, "1": 0}}'
    earlier = [row for row in every if row not in later and row["queue_id"] == 0]
    assert bodies(read(written.path, endingOffsetsByTimestamp=ends)) == bodies(earlier)


def test_filters_are_pushed_down(written: WrittenFolder) -> None:
    """What they leave out is not read."""
    written.close()
    reader = reader_of(written.path, pushdown="true")
    assert isinstance(reader, PushingReader)
    assert not list(
        reader.pushFilters([EqualTo(("queue_id",), 1), GreaterThanOrEqual(("queue_offset",), 120)])
    )
    assert bodies(rows_of(reader)) == {1: written.sent[ORDERS, 1][120:]}


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
    assert says.startswith("DLEDGER_FOLDER_INCOMPLETE: orders/1 belongs to group g2")
    assert bodies(read(alone, assign='{"orders": [0]}')) == {0: [b"0"] * 3}
    shutil.copytree(members / "g1", members / "g1-again")
    says = refused(members)
    assert says.startswith("DLEDGER_FOLDER_AMBIGUOUS: ")
    assert "g1-again" in says


def test_the_source_hands_its_options_on(written: WrittenFolder) -> None:
    """As Spark makes one: names in lower case."""
    written.close()
    given = {"path": str(written.path), "topic": "orders", "columns": "body"}
    source = DledgerSource(given)
    assert source.schema() == "body BINARY"
    reader = source.reader(schema(given))
    assert isinstance(reader, LogReader)
    assert len(rows_of(reader)) == 5 * BATCHES


def test_a_folder_whose_old_records_were_carried_forward_is_read(tmp_path: Path) -> None:
    folder = WrittenFolder(tmp_path / "g1")
    orders = folder.topic("orders")
    folder.batch(orders, 1, [b"old"])
    for number in range(60):
        folder.batch(orders, 0, [b"%d" % number + bytes(60)] * 5)
    folder.command(Trim(orders, 0, 300))
    folder.save()
    target = folder.log.sealed_segments[-1][0]
    roots = folder.machine.queries.roots(FIRST, target, 100)
    copies, until = read_copies(folder.log, roots, target)
    folder.command(CarryForward(target, FIRST, until, tuple(copies)))
    folder.save()
    needed = Position(folder.machine.head_needed())
    assert folder.log.trim_head(needed, folder.machine.saved_index) != []
    folder.sync()
    folder.close()
    assert bodies(read(folder.path)) == {1: [b"old"]}
