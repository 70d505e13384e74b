"""Looking into a stopped member's folder, and setting a damaged one aside."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dledger.files import OsFileSystem
from dledger.log.folder import DataFolder
from dledger.log.hard_state import HardState
from dledger.state.commands.command import Command
from dledger.state.commands.registry import encode
from dledger.state.consumers.settings import GroupSettings, StartFrom
from dledger.state.machine import APPLIED_VALUE, StateMachine
from dledger.state.offsets import CommitOffset
from dledger.state.producers.registration import RegisterProducer
from dledger.state.progress.claims import ClaimQueues, WantedQueue
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.failures import BY_POLICY, DEAD_NOW, FailedRecord, FailRecords
from dledger.state.queues.holds import Hold
from dledger.state.queues.trim import Trim
from dledger.state.tables import PREFIX, Table
from dledger.state.timers.schedules import SetSchedule
from dledger.state.topics.commands import CreateTopic, DeleteTopic, ImportTopic
from dledger.state.values import LayoutPart, TopicType
from dledger.store.lmdb_store import LmdbStore
from dledger.types import EntryKind, LogIndex, MemberId, Term
from dledger_broker.cli import main
from dledger_offline.folder import Damage, EntryFound, walk_segments
from dledger_proto.batch.codec import ProducerStamp, Record, encode_batch
from tests.contract.store_suite import save
from tests.unit.log.support import Member
from tests.unit.state.groups_kit import of_group
from tests.unit.state.kit import batch as plain_batch

TOPIC_ID = bytes(range(16))
OLD_ID = b"\xfe" * 16
GROUP_ID, DEAD_ID = b"\xfd" * 16, b"\xfc" * 16
SETTINGS = GroupSettings("g1", DEAD_ID, start=StartFrom.FIRST)
PRODUCER_ID = b"p" * 16
BATCHES = 40
OTHERS = ("reference-at", "timer-by-id", "compacted", "user", "user-meta")
"""Tables that only delayed batches fill, a compacted topic, or (see unit.state) users."""


def write_everything(member: Member, machine: StateMachine) -> None:
    """Fill the log and every table of the state."""
    member.genesis()
    log = member.log
    commands: list[Command[object]] = [
        CreateTopic(TOPIC_ID, "t", TopicType.NORMAL, (LayoutPart("g1", 2),), 2, 6),
        RegisterProducer(PRODUCER_ID, b"1" * 16),
        RegisterProducer(b"q" * 16, b"2" * 16),
        CreateTopic(OLD_ID, "old", TopicType.NORMAL, (LayoutPart("g1", 2),), 2, 6),
    ]
    for command in commands:
        member.append(encode(command))
    stamps = [ProducerStamp(PRODUCER_ID, 1, 3 * number) for number in range(BATCHES)]
    for number, stamp in enumerate(stamps):
        records = [Record(b"body", "tag", (f"key-{number}-{i}",)) for i in range(3)]
        batch = encode_batch(
            records, topic_id=TOPIC_ID, queue=0, stamp=stamp, base_number=3 * number,
            base_time_ms=1,
        )  # fmt: skip
        log.append_new(EntryKind.BATCHES, (batch,), Term(2), log.last_time_ms + 1)
    later: list[Command[object]] = [
        CommitOffsets("readers", (CommitOffset(TOPIC_ID, 0, 7, "where"),)),
        ImportTopic(of_group(DEAD_ID, "%DLQ%billing", 1 << 20)),
        ImportTopic(of_group(GROUP_ID, "%RETRY%billing", 1 << 21, SETTINGS)),
        Hold("spark", TOPIC_ID, 0, 90, 1 << 50),
        SetSchedule("daily", "0 6 * * *", "UTC", plain_batch(topic=TOPIC_ID)),
        Trim(TOPIC_ID, 0, 80),
        DeleteTopic(OLD_ID),
        ClaimQueues("billing", "a", (WantedQueue(TOPIC_ID, 0, 5),)),
        FailRecords(
            "billing",
            "a",
            (
                FailedRecord(TOPIC_ID, 0, 5, 0, 90, 0, BY_POLICY, "bad"),
                FailedRecord(TOPIC_ID, 0, 5, 0, 91, 0, DEAD_NOW, "bad"),
            ),
        ),
    ]
    for command in later:
        member.append(encode(command), term=2)
    member.sync(HardState(Term(2), "m1", {MemberId("m2"): b"2" * 16}))
    while machine.applied_index < log.last_index:
        following = LogIndex(machine.applied_index + 1)
        for entry in log.entries(following, log.last_index, 1 << 30):
            machine.apply(entry)
    flush = machine.freeze()
    assert flush is not None
    flush.execute()
    machine.flush_finished(flush)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of a stopped member of several segments."""
    path = tmp_path / "m1" / "data" / "g1"
    member = Member(OsFileSystem(), str(path))
    store = LmdbStore(str(path / "state"), 1 << 26)
    write_everything(member, StateMachine(store, "g1"))
    store.close()
    member.close()
    assert len(list((path / "log").glob("*.log"))) > 2
    return path


def digest(folder: Path) -> str:
    """A hash over names and contents of everything in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(str(path.relative_to(folder)).encode())
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


@pytest.fixture
def run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, list[Any], str]]:
    """Run a command on the folder with --json: exit code, documents, errors. Nothing may change."""

    def execute(*arguments: str) -> tuple[int, list[Any], str]:
        before = digest(folder)
        capsys.readouterr()
        code = main([*arguments, str(folder), "--json"])
        assert digest(folder) == before, "inspect never writes"
        printed = capsys.readouterr()
        return code, [json.loads(line) for line in printed.out.splitlines()], printed.err

    return execute


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def logs(folder: Path) -> list[Path]:
    return sorted((folder / "log").glob("*.log"))


# Inspect


def test_small_files(run: Any) -> None:
    code, (identity,), _ = run("inspect", "identity")
    assert (code, identity["member"], identity["group_id"]) == (0, "m1", bytes(range(16)).hex())
    code, (hard_state,), _ = run("inspect", "hard-state")
    assert (code, hard_state["term"], hard_state["vote"]) == (0, 2, "m1")
    assert hard_state["incarnations"] == {"m2": (b"2" * 16).hex()}
    code, (checkpoint,), _ = run("inspect", "checkpoint")
    assert (code, checkpoint["end_index"]) == (0, BATCHES + 14)
    assert [start["term"] for start in checkpoint["term_starts"]] == [0, 1, 2]


def test_segments_show_every_entry(run: Any, folder: Path) -> None:
    code, pieces, _ = run("inspect", "segments", "--payloads")
    assert code == 0
    entries = [piece for piece in pieces if piece["piece"] == "entry"]
    assert [entry["index"] for entry in entries] == list(range(1, BATCHES + 15))
    assert len([piece for piece in pieces if piece["piece"] == "segment"]) == len(logs(folder))
    contents = [line for entry in entries for line in entry["contents"]]
    assert contents[0].startswith("genesis of g1")
    assert contents[1].startswith("CreateTopic ")
    assert contents[5].startswith(f"batch of 3 for topic {TOPIC_ID.hex()} queue 0, ")
    assert contents[-4].startswith("Trim ")
    assert contents[-1].startswith("FailRecords ")


def test_segments_from_an_index_with_a_limit(run: Any) -> None:
    _, pieces, _ = run("inspect", "segments", "--from", "10", "--limit", "2")
    assert [piece["index"] for piece in pieces if piece["piece"] == "entry"] == [10, 11]


def test_state_decodes_every_table(run: Any) -> None:
    code, rows, _ = run("inspect", "state")
    assert code == 0
    by_table: dict[str, list[Any]] = {}
    for row in rows:
        by_table.setdefault(row["table"], []).append(row)
    names = {table.name.lower().replace("_", "-") for table in Table}
    names -= {"consumer", "grant", "group-epochs", "copy", "copy-place"}  # unit.state
    assert set(by_table) >= names - {"key-directory", "garbage", "meta", *OTHERS}
    assert by_table["topic"][0]["key"] == "t"
    assert by_table["topic"][0]["value"]["layout"] == ["g1:2"]
    assert by_table["topic-deleted"][0]["key"] == OLD_ID.hex()
    assert by_table["topic-deleted"][0]["value"] == {"deleted_ms": 0}
    queue = by_table["queue"][0]["value"]
    assert (queue["minimum"], queue["maximum"]) == (80, 3 * BATCHES)
    assert by_table["group-offset"][0]["key"] == f"readers {TOPIC_ID.hex()}/0"
    assert by_table["group-offset"][0]["value"]["metadata"] == "where"
    assert by_table["hold"][0]["key"].startswith("spark ")
    applied = [row for row in by_table["meta-local"] if row["key"] == "applied"]
    assert applied[0]["value"]["index"] == BATCHES + 14
    window = by_table["producer-window"][0]["value"]
    assert window["sequences"] == f"0 to {3 * BATCHES - 1}"


def test_state_of_one_table(run: Any) -> None:
    code, rows, _ = run("inspect", "state", "--table", "topic")
    assert (code, [row["table"] for row in rows]) == (0, ["topic"] * 4)
    code, _, error = run("inspect", "state", "--table", "nope")
    assert code == 2
    assert error.startswith("error: --table: nope, must be one of meta-local, meta, topic, topic")


def test_tables_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "segments", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("00000000000000000000.log: position 0 index 1, ")
    assert lines[1].startswith("  entry 1 term=0 genesis=1 position=0 ")
    assert lines[-1] == f"{BATCHES + 14} entries, all sound"
    for limit, end in ((5, "5 entries, all sound, more follow"), (BATCHES + 14, lines[-1])):
        assert main(["inspect", "segments", str(folder), "--limit", str(limit)]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert len([line for line in shown if line.startswith("  entry ")]) == limit
        assert shown[-1] == end
    assert main(["inspect", "segments", str(folder), "--from", "10", "--limit", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "2 entries and 9 below 10, all sound, more follow"
    )
    assert main(["inspect", "hard-state", str(folder)]) == 0
    assert "term          2" in capsys.readouterr().out


def test_what_lies_behind_damage_is_found_again(run: Any, folder: Path) -> None:
    pieces = list(walk_segments(folder))
    entries = [piece for piece in pieces if isinstance(piece, EntryFound)]
    struck = entries[10]
    flip(struck.path, 128 + struck.entry.header.position - int(struck.path.stem) + 100)
    code, shown, _ = run("inspect", "segments")
    assert code == 1
    (damage,) = [piece for piece in shown if piece["piece"] == "damage"]
    assert damage["position"] == struck.entry.header.position
    assert damage["resumed_at"] == struck.entry.header.end_position
    assert damage["maybe_torn_tail"] is False
    indexes = [piece["index"] for piece in shown if piece["piece"] == "entry"]
    assert indexes == [index for index in range(1, BATCHES + 15) if index != 11]


def test_damaged_segment_header_does_not_hide_its_entries(run: Any, folder: Path) -> None:
    flip(logs(folder)[1], 20)
    code, shown, _ = run("inspect", "segments")
    assert code == 1
    assert [piece["problem"] != "" for piece in shown if piece["piece"] == "segment"][:2] == [
        False,
        True,
    ]
    assert len([piece for piece in shown if piece["piece"] == "entry"]) == BATCHES + 14


def test_torn_tail_is_called_so(run: Any, folder: Path) -> None:
    last = [piece for piece in walk_segments(folder) if isinstance(piece, EntryFound)][-1]
    with last.path.open("r+b") as file:
        file.seek(128 + last.entry.header.end_position - int(last.path.stem))
        file.write(b"DLE1 half an entry")
    code, shown, _ = run("inspect", "segments")
    assert code == 1
    assert shown[-1]["piece"] == "damage"
    assert shown[-1]["maybe_torn_tail"] is True
    code, (verdict,), _ = run("repair", "--check")
    assert (code, verdict["problems"]) == (0, []), "the next start cuts it"


def test_missing_and_damaged_small_files(run: Any, folder: Path) -> None:
    flip(folder / "hard_state", 18)
    code, shown, error = run("inspect", "hard-state")
    assert (code, shown) == (1, [])
    assert error.startswith(f"error: {folder}/hard_state: the stored crc is ")
    assert error.endswith("; dledger repair sets a damaged folder aside\n")
    (folder / "checkpoint").unlink()
    _, _, error = run("inspect", "checkpoint")
    assert f"{folder}/checkpoint: No such file or directory" in error


def test_state_that_is_no_database(run: Any, folder: Path) -> None:
    (folder / "state" / "data.mdb").write_bytes(b"no database at all" * 1000)
    code, _, error = run("inspect", "state")
    assert code == 1
    assert f"{folder}/state: meta page 0: magic " in error


def test_a_state_that_is_ahead_of_the_log_is_damage_and_an_empty_one_behind_it_is_not(
    run: Any, folder: Path
) -> None:
    """As at the start, which ends with the same words: what was acknowledged is gone."""
    state = LmdbStore(str(folder / "state"), 1 << 26)
    key = PREFIX[Table.META_LOCAL] + b"applied"
    _, *others = APPLIED_VALUE.unpack(state.get(key) or b"")
    state.put(key, APPLIED_VALUE.pack(10_000, *others))
    save(state)
    state.close()
    code, (verdict,), _ = run("repair", "--check")
    assert code == 1
    (problem,) = verdict["problems"]
    assert problem.startswith(
        f"{folder}/state: the state has applied entry 10000, but the log ends"
    )
    shutil.rmtree(folder / "state")
    code, (verdict,), _ = run("repair", "--check")
    assert (code, verdict["problems"]) == (0, []), "the log has everything from the first entry on"


def test_running_member_can_be_looked_at(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_folder = DataFolder.open(
        OsFileSystem(), str(folder), "c1", "g1", MemberId("m1"), Random(0)
    )
    assert main(["inspect", "identity", str(folder)]) == 0
    assert "is running; its newest bytes may be half written" in capsys.readouterr().err
    assert main(["repair", str(folder), "--yes", "--even-if-healthy"]) == 1
    assert capsys.readouterr().err == (
        f"error: the member of {folder} is running; stop the member first\n"
    )
    open_folder.close()


def test_folder_is_found_below_and_must_be_one(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "identity", str(tmp_path)]) == 0
    other = tmp_path / "m2" / "data" / "g1"
    Member(OsFileSystem(), str(other)).close()
    capsys.readouterr()
    assert main(["inspect", "identity", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path} holds 2 data folders; name one: {folder}, {other}\n"
    )
    (tmp_path / "empty").mkdir()
    assert main(["inspect", "identity", str(tmp_path / "empty")]) == 2
    assert main(["inspect", "identity", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: no member's data folder in {tmp_path}/empty; a data folder has a folder "
        "`log` and a file `identity`",
        f"error: {tmp_path}/nothing is not a folder",
    ]


# Repair


def test_healthy_folder_is_refused_unless_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = digest(folder)
    assert main(["repair", str(folder), "--yes"]) == 1
    assert capsys.readouterr().err == (
        f"error: {folder} is healthy: every file passes its checks; use --even-if-healthy "
        "to set it aside all the same\n"
    )
    assert digest(folder) == before
    assert main(["repair", str(folder), "--yes", "--even-if-healthy"]) == 0
    assert not folder.exists()
    assert digest(folder.with_name("g1.damaged-1")) == before


def break_identity(folder: Path) -> str:
    flip(folder / "identity", 20)
    return f"{folder}/identity: the stored crc is"


def break_checkpoint(folder: Path) -> str:
    (folder / "checkpoint").unlink()
    return f"{folder}/checkpoint: the file is missing. It is made together"


def break_early_entry(folder: Path) -> str:
    flip(logs(folder)[0], 400)
    return f"{logs(folder)[0]}: at position "


def break_segment_header(folder: Path) -> str:
    flip(logs(folder)[1], 20)
    return f"{logs(folder)[1]}: "


def lose_segment(folder: Path) -> str:
    lost = logs(folder)[1]
    lost.unlink()
    return f"{lost}: at position {int(lost.stem)} a segment file begins that the checkpoint lists"


def lose_synced_end(folder: Path) -> str:
    last = [piece for piece in walk_segments(folder) if isinstance(piece, EntryFound)][-1]
    os.truncate(last.path, 128 + last.entry.header.position - int(last.path.stem))
    return f"{last.path}: at position {last.entry.header.position} a sound entry is expected"


def break_state(folder: Path) -> str:
    os.truncate(folder / "state" / "data.mdb", 10)
    return f"{folder}/state: the data file is not the newest: found commit 0 "


def cut_state(folder: Path) -> str:
    size = os.path.getsize(folder / "state" / "data.mdb")
    os.truncate(folder / "state" / "data.mdb", size - 4_096)
    return f"{folder}/state: data.mdb has {size - 4_096} bytes, its newest commit needs "


@pytest.mark.parametrize(
    "damage",
    [
        break_identity,
        break_checkpoint,
        break_early_entry,
        break_segment_header,
        lose_segment,
        lose_synced_end,
        break_state,
        cut_state,
    ],
)
def test_damage_is_explained_and_set_aside(
    folder: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], str]
) -> None:
    expected = damage(folder)
    assert main(["repair", str(folder), "--check", "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert any(problem.startswith(expected) for problem in problems), problems
    assert main(["repair", str(folder), "--yes", "--json"]) == 0
    renamed = json.loads(capsys.readouterr().out)["renamed_to"]
    assert renamed == f"{folder}.damaged-1"
    assert not folder.exists()


def test_check_writes_nothing(folder: Path) -> None:
    """Recovery's own code decides, but what it would change on the disk is not changed."""
    last = logs(folder)[-1]
    with last.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"torn")
    (folder / "log" / "left.tmp").write_bytes(b"a crash leaves this")
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    before = {path: path.read_bytes() for path in (folder / "log").iterdir()}
    assert main(["repair", str(folder), "--check"]) == 0
    assert {path: path.read_bytes() for path in (folder / "log").iterdir()} == before
    written = [path for path in folder.rglob("*") if path.stat().st_mtime != 1]
    assert not [path for path in written if path.parent.name != "state"], written


@pytest.mark.parametrize("is_under_up", [False, True])
def test_who_starts_the_member_again_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], is_under_up: bool
) -> None:
    """`dledger up` leaves a member down that found damage: all has to be started again."""
    if is_under_up:
        (folder.parent / "cluster.json").write_text("{}")
    break_identity(folder)
    assert main(["repair", str(folder), "--yes"]) == 0
    shown = capsys.readouterr().out
    assert (f"dledger up --folder {folder.parent}: it starts empty" in shown) is is_under_up
    assert (
        "(dledger broker, or your service manager): it starts empty" in shown
    ) is not is_under_up


def test_set_aside_takes_the_next_number_and_the_old_are_not_in_the_way(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2):
        if not folder.exists():
            Member(OsFileSystem(), str(folder)).close()
        (folder / "checkpoint").unlink()
        assert main(["repair", str(tmp_path), "--yes"]) == 0
        assert (folder.parent / f"g1.damaged-{number}").exists()
    capsys.readouterr()
    assert main(["inspect", "identity", str(folder.parent / "g1.damaged-2")]) == 0


def test_nothing_is_renamed_without_being_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "checkpoint").unlink()
    with open(os.devnull) as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        assert main(["repair", str(folder)]) == 2
    assert capsys.readouterr().err.endswith(
        f"error: {folder} is not renamed: there is no terminal to ask on; confirm with --yes\n"
    )
    assert folder.exists()


def test_lock_of_a_running_member_is_not_disturbed(folder: Path) -> None:
    with (folder / "LOCK").open("a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["repair", str(folder), "--check"]) == 1
    assert main(["repair", str(folder), "--check"]) == 0
    assert not any(isinstance(piece, Damage) for piece in walk_segments(folder))
