"""The option `failOnUnreadable` of a data source, by a folder that holds such a batch."""

from pathlib import Path

import pytest

from tests.unit.reading.data_folder import WrittenFolder
from tests.unit.spark.folders import ORDERS, read, refused
from tests.unreadable import compressed, with_bad_bodies


def test_it_is_refused_or_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By name of group, queue, offsets and option; the rest is all there."""
    folder = WrittenFolder(tmp_path / "m1")
    folder.topic("orders")
    folder.batch(ORDERS, 0, [b"a", b"b"])
    folder.framed(with_bad_bodies(compressed(ORDERS, 0, 3)))
    folder.batch(ORDERS, 0, [b"c"])
    folder.save()
    folder.close()
    told = refused(folder.path)
    assert told.startswith("DLEDGER_UNREADABLE_BATCH: orders/0 of group g1: offsets 2 to 4, 3 rec")
    assert "set failOnUnreadable=false" in told
    assert "failOnUnreadable" in refused(folder.path, failOnDataLoss="false"), "another option"
    caplog.clear()
    rows = read(folder.path, failOnUnreadable="false")
    assert [row["body"] for row in rows] == [b"a", b"b", b"c"]
    assert [row["queue_offset"] for row in rows] == [0, 1, 5]
    messages = [each.message for each in caplog.records]
    assert any("orders/0 of group g1: offsets 2 to 4" in each for each in messages)
    assert any(
        "3 records in 1 batches of this partition were left out" in each for each in messages
    )
    narrow = read(folder.path, columns="queue_offset,tag")
    assert [row["queue_offset"] for row in narrow] == [*range(6)], "bodies are not looked at"
