"""`path=`: folders that cannot be read, each refused by a stable name and with what to do.

Goal: a wrong or missing row is never the answer to a damaged, incomplete or changing folder.
Method: sound folders made by the product's own log and state, broken in one way each.
"""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.files import OsFileSystem
from dledger.state import saved
from dledger.state.format_level import SetFormatLevel
from dledger.state.topics.commands import CreateTopic, DeleteTopic
from dledger.state.values import PERMISSION_WRITE, LayoutPart, TopicType
from dledger.store import lmdb_mark
from dledger.store.lmdb_mark import read_mark, write_mark
from dledger_client.spark.failures import DledgerReadError
from dledger_client.spark.stream import stream_reader_for
from dledger_offline import reading
from dledger_offline.folder import segment_files
from dledger_proto.entry import SEGMENT_HEADER_SIZE, parse_segment_name
from tests.unit.reading.data_folder import WrittenFolder, topic_id
from tests.unit.spark.folders import (
    BATCHES,
    ORDERS,
    bodies,
    read,
    reader_of,
    refused,
    schema,
    write,
)


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


@pytest.mark.parametrize("group", ["g1", "g2"])
def test_batches_of_another_log_are_refused(written: WrittenFolder, group: str) -> None:
    """Sound in themselves, and not what the state names: file and position are said."""
    written.close()
    other = WrittenFolder(written.path.parent / "other", group)
    other.topic("orders")
    for number in range(BATCHES):
        records = [b"%d-%d" % (number, each) + bytes(60) for each in range(5)]
        other.batch(ORDERS, 1 - number % 2, records)
    other.save()
    other.close()
    shutil.rmtree(written.path / "log")
    shutil.copytree(other.path / "log", written.path / "log")
    shutil.rmtree(other.path)
    says = refused(written.path)
    assert says.startswith("DLEDGER_FOLDER_DAMAGED: ")
    assert ".log: position " in says
    assert ("the segment belongs to group id" in says) == (group == "g2")


def test_an_older_state_is_refused(tmp_path: Path) -> None:
    """A data file behind its mark: what was trimmed or deleted since would come back."""
    written = write(tmp_path / "g1")
    data = written.path / "state" / "data.mdb"
    older = data.read_bytes()
    written.command(DeleteTopic(ORDERS))
    written.save()
    written.close()
    data.write_bytes(older)
    says = refused(written.path)
    assert says.startswith("DLEDGER_FOLDER_DAMAGED: ")
    assert "the data file is not the newest" in says


def test_a_topic_that_may_not_be_read(tmp_path: Path) -> None:
    """The same refusal as over the network."""
    written = write(tmp_path / "g1")
    layout = (LayoutPart("g1", 1),)
    written.command(
        CreateTopic(topic_id("closed"), "closed", TopicType.NORMAL, layout, 1, PERMISSION_WRITE)
    )
    written.save()
    written.close()
    assert refused(written.path, topic="closed").startswith("DLEDGER_NO_PERMISSION: closed/0")


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
    with pytest.raises(DledgerReadError, match=r"DLEDGER_FOLDER_CHANGED: .*load\(\) again"):
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


def _blank_state(folder: Path) -> None:
    """As if never written; the mark knows better."""
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
    (_remove_state, "FOLDER_INCOMPLETE", "no saved state is there"),
    (_damage_state, "FOLDER_DAMAGED", "state store"),
    (_blank_state, "FOLDER_DAMAGED", "state store"),
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
    found = read_mark(str(mark.parent))
    assert found is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lmdb_mark, "_VERSION", 2)
        write_mark(OsFileSystem(), str(mark.parent), found)
    assert "DLEDGER_FOLDER_NEWER: " in refused(written.path)


def test_a_later_level_of_commands_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that this dledger may misread."""
    written = write(tmp_path / "g1")
    written.command(SetFormatLevel(1))
    written.save()
    written.close()
    monkeypatch.setattr(saved, "FORMAT_LEVEL_MAX", 0)
    says = refused(written.path)
    assert says.startswith("DLEDGER_FOLDER_NEWER: ")
    assert "format level 1" in says


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
    monkeypatch.setattr(reading, "READ_BYTES", 2_000)
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


def test_a_stream_has_no_path(tmp_path: Path) -> None:
    """Nothing would ever come."""
    given = {"path": str(tmp_path), "topic": "orders"}
    with pytest.raises(DledgerReadError, match="path: not for a stream"):
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
    assert "install dledger with the extras broker,spark" in ended.stderr
