"""The flight recorder: bounds and order in memory, the file, its damage, and who waits for it."""

import json
import threading
from pathlib import Path

import pytest
import structlog

from dledger.trace import FREQUENT
from dledger_broker.config.sections import LogConfig
from dledger_broker.flight import dumping
from dledger_broker.flight.dumping import PREVIOUS_FILE, RECORD_FILE, FlightDump
from dledger_broker.flight.record_file import NoRecord, encode_record, parse_record
from dledger_broker.flight.recorder import (
    EVENT_BYTES,
    LEFT_OUT,
    TEXT_LENGTH_MAX,
    FlightRecorder,
)
from dledger_broker.process.log_trace import LogTrace
from dledger_broker.process.logs import set_up_logs
from tests.unit.broker.fakes import ManualClock


def names(recorder: FlightRecorder) -> list[str]:
    return [event.name for event in recorder.snapshot().events]


def recorded(count: int = 5) -> bytes:
    clock = ManualClock()
    recorder = FlightRecorder(clock)
    for number in range(count):
        recorder.note("g1", "role", {"term": number, "id": b"\x01\xff", "leader": None})
        clock.now += 1
    about: dict[str, object] = {"member": "a", "reason": "asked for"}
    return b"".join(encode_record(about, recorder.snapshot()))


# In memory.


def test_the_oldest_events_go_first() -> None:
    recorder = FlightRecorder(ManualClock(), events_max=3)
    for name in ("a", "b", "c", "d", "e"):
        recorder.note("g1", name, {})
    assert names(recorder) == ["c", "d", "e"]
    assert recorder.snapshot().dropped == 2


def test_bytes_are_bounded_however_long_the_texts_are() -> None:
    most = 4 * (EVENT_BYTES + TEXT_LENGTH_MAX)
    recorder = FlightRecorder(ManualClock(), bytes_max=most)
    for number in range(50):
        recorder.note("g1", f"event {number}", {"text": "x" * 100_000})
    events = recorder.snapshot().events
    assert [event.name for event in events] == [f"event {number}" for number in range(46, 50)]
    assert sum(event.size for event in events) <= most
    assert events[0].fields["text"] == "x" * TEXT_LENGTH_MAX


def test_a_value_that_changes_later_is_kept_as_it_was() -> None:
    recorder = FlightRecorder(ManualClock())
    names_of = ["a"]
    recorder.note("g1", "members", {"names": names_of})
    names_of.append("b")
    assert recorder.snapshot().events[0].fields == {"names": "['a']"}


def test_what_happens_with_every_entry_pushes_nothing_out() -> None:
    """One a second stays, of each group, and says how many were left out before it."""
    clock = ManualClock()
    recorder = FlightRecorder(clock, events_max=10)
    recorder.note("g1", "role", {"role": "leader"})
    assert "commit" in FREQUENT
    for index in range(3_000):
        recorder.note("g1", "commit", {"index": index})
        recorder.note("g2", "commit", {"index": index})
        clock.now += 0.001
    events = recorder.snapshot().events
    assert events[0].name == "role"
    commits = [event.fields for event in events if event.group == "g2"]
    assert [fields.get(LEFT_OUT) for fields in commits[:2]] == [None, 999]


def test_events_of_a_group_and_lines_of_the_member_are_noted_once() -> None:
    recorder = FlightRecorder(ManualClock())
    set_up_logs(LogConfig(), note=recorder.note)
    try:
        LogTrace("g1", "a", lambda: 7, recorder.note).event("role", role="leader")
        structlog.get_logger().bind(group="g1").warning("refill gathered", last_index=9)
    finally:
        structlog.reset_defaults()
    first, second = recorder.snapshot().events
    assert (first.group, first.name, first.fields) == ("g1", "role", {"role": "leader"})
    assert (second.group, second.name) == ("g1", "refill gathered")
    assert second.fields == {"last_index": 9, "level": "warning"}


# The file.


def test_a_record_is_read_as_it_was_written() -> None:
    record = parse_record(recorded())
    assert (record.about["member"], record.about["reason"]) == ("a", "asked for")
    assert [event.fields["term"] for event in record.events] == [0, 1, 2, 3, 4]
    assert record.events[0].fields == {"term": 0, "id": "01ff", "leader": None}
    assert record.events[0][:4] == (100_000, 100.0, "g1", "role")
    assert record.problem == ""


def test_a_record_that_was_cut_off_is_read_as_far_as_it_goes() -> None:
    whole = recorded()
    ends = [at for at, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(ends[0] + 1, len(whole)):
        record = parse_record(whole[:size])
        assert len(record.events) == min(sum(end < size for end in ends[1:]), 5)
        assert "ends too early" in record.problem


def test_a_damaged_line_hides_no_other() -> None:
    lines = recorded().split(b"\n")
    lines[2] = lines[2].replace(b"role", b"rule")
    lines[4] = b"\xff"
    record = parse_record(b"\n".join(lines))
    assert [event.fields["term"] for event in record.events] == [0, 2, 4]
    assert record.problem == "2 lines are damaged and left out"


@pytest.mark.parametrize("data", [b"", b"\n", b"no record\n", recorded()[9:]])
def test_other_bytes_are_no_record(data: bytes) -> None:
    if data.startswith(b"{"):
        data = data.split(b"\n")[0]
    with pytest.raises(NoRecord):
        parse_record(data)


def test_a_record_of_a_later_program_is_refused() -> None:
    data = recorded().replace(b"dledger flight 1", b"dledger flight 2")
    text = data.split(b"\n")[0][9:]
    from crc32c import crc32c

    with pytest.raises(NoRecord, match="dledger flight 2"):
        parse_record(b"%08x %s\n" % (crc32c(text), text))


# Dumps.


def dump_in(folder: Path) -> tuple[FlightRecorder, FlightDump]:
    clock = ManualClock()
    recorder = FlightRecorder(clock)
    dump = FlightDump(recorder, clock, folder, {"member": "a"})
    dump.is_serving = True
    return recorder, dump


def test_two_records_are_kept(tmp_path: Path) -> None:
    recorder, dump = dump_in(tmp_path)
    for reason in ("first", "second", "third"):
        recorder.note("g1", reason, {})
        dump.at_end(reason)
    found = {
        path.name: parse_record(path.read_bytes()).about["reason"] for path in tmp_path.iterdir()
    }
    assert found == {RECORD_FILE: "third", PREVIOUS_FILE: "second"}
    assert names(recorder)[:1] == ["first"]


def test_a_start_that_failed_writes_nothing(tmp_path: Path) -> None:
    """A supervisor that starts a broken member again and again must not push out the reason."""
    _, dump = dump_in(tmp_path)
    dump.is_serving = False
    dump.at_end("cannot start")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_is_told_and_nothing_else(tmp_path: Path) -> None:
    recorder, dump = dump_in(tmp_path / "file" / "below")
    (tmp_path / "file").write_text("no folder")
    set_up_logs(LogConfig(), note=recorder.note)
    try:
        dump.at_end("the end")
    finally:
        structlog.reset_defaults()
    assert names(recorder) == ["flight record not written"]


def test_a_disk_that_hangs_holds_the_end_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, dump = dump_in(tmp_path)
    hangs, called = threading.Event(), threading.Event()

    def encode(*_: object) -> list[bytes]:
        called.set()
        hangs.wait()
        return []

    monkeypatch.setattr(dumping, "encode_record", encode)
    monkeypatch.setattr(dumping, "DUMP_SECONDS_MAX", 0.01)
    try:
        dump.at_end("the end")
        assert called.wait(10)
        assert not (tmp_path / RECORD_FILE).exists()
    finally:
        hangs.set()


def test_every_line_is_json_behind_its_sum() -> None:
    for line in recorded().splitlines():
        json.loads(line[9:])
