"""The file of a history: what is written is read, and what is wrong with a file names its line."""

from pathlib import Path

import msgspec
import pytest
from crc32c import crc32c

from jepsen_tests.history.events import NEVER, Kind, Row
from jepsen_tests.history.faults import faults_in_force, phase_of
from jepsen_tests.history.history_file import (
    BadHistory,
    HistoryWriter,
    Pairing,
    read_history,
    read_rows,
)
from tests.unit.jepsen.stories import Story, header

STORY = (
    Story().phase("setup").send(1, "1-1 1-2", 0, key="a").fault("kill", "n1").lose(2, "2-1")
    .refuse(3, "3-1").poll(4, (0, "1-1 1-2")).fault("heal", "").phase("final")
    .begin_send(5, "5-1")
)  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A good file of STORY."""
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path, header(places=["t/0"])) as writer:
        for row in STORY.rows:
            writer.append(row)
        writer.close(99_000_000)
    return path


def why_bad(path: Path) -> str:
    with pytest.raises(BadHistory) as caught:
        read_history(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def rewrite(path: Path, texts: list[bytes]) -> None:
    """Write lines of other content whose checksums are right."""
    crc, out = 0, b""
    for text in texts:
        crc = crc32c(text, crc)
        out += b'%b,"crc":"%08x"}\n' % (text, crc)
    path.write_bytes(out)


def texts(path: Path) -> list[bytes]:
    return [line[: -len(',"crc":"00000000"}\n')] for line in lines(path)]


def test_what_is_written_is_read(path: Path) -> None:
    rows = [row for row in read_rows(path) if isinstance(row, Row)]
    assert rows == STORY.rows
    history = read_history(path)
    expected = STORY.history()
    assert history.ops == expected.ops
    assert history.faults == expected.faults
    assert history.header.notes == {"places": ["t/0"]}
    assert history.ended == 99_000_000


def test_operations_are_paired(path: Path) -> None:
    ops = {op.p: op for op in read_history(path).ops}
    ok, unknown, refused, unended = (ops[p] for p in (1, 2, 3, 5))
    assert (ok.is_ok, ok.asked, ok.result, ok.key) == (True, ["1-1", "1-2"], [0, 1], "a")
    assert (unknown.outcome, unknown.ended, unknown.err) == (Kind.INFO, NEVER, "DEADLINE")
    assert unknown.done > unknown.i
    assert refused.is_failed
    assert refused.ended > refused.began
    assert (unended.outcome, unended.done, unended.ended) == (Kind.INFO, 0, NEVER)


def test_phases_and_faults(path: Path) -> None:
    history = read_history(path)
    assert phase_of(history, "setup") == STORY.rows[0]
    assert phase_of(history, "quiet") is None
    [fault] = faults_in_force(history)
    assert (fault.name, fault.targets) == ("kill", "n1")
    assert 0 < fault.start < fault.end < history.ended


def test_a_fault_without_a_heal_lasts_to_the_end() -> None:
    history = Story().fault("pause", "n2").history()
    row = history.faults[-1]
    (fault,) = faults_in_force(history)
    assert (fault.name, fault.targets, fault.row) == ("pause", "n2", row.i)
    assert fault.start <= row.t
    assert fault.end == history.ended


def test_every_cut_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    starts = [0]
    for line in lines(path):
        starts.append(starts[-1] + len(line))
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        number = sum(start <= size for start in starts)
        assert f"line {number}: cut off" in why_bad(path)


def test_every_edited_byte_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        line = whole[:at].count(b"\n") + 1
        assert f"line {line}: " in why_bad(path)


@pytest.mark.parametrize("number", [2, 5, 9])
def test_a_missing_or_doubled_line_is_named(path: Path, number: int) -> None:
    all_lines = lines(path)
    path.write_bytes(b"".join(all_lines[: number - 1] + all_lines[number:]))
    assert f"line {number}: edited" in why_bad(path)
    path.write_bytes(b"".join(all_lines[:number] + all_lines[number - 1 :]))
    assert f"line {number + 1}: edited" in why_bad(path)


def test_two_lines_in_the_wrong_order_are_named(path: Path) -> None:
    all_lines = lines(path)
    all_lines[3], all_lines[4] = all_lines[4], all_lines[3]
    path.write_bytes(b"".join(all_lines))
    assert "line 4: edited" in why_bad(path)


def test_a_newer_version_is_named(path: Path) -> None:
    newer = texts(path)[0].replace(b'"dledger_history":1', b'"dledger_history":2')
    assert newer != texts(path)[0]
    rewrite(path, [newer, *texts(path)[1:]])
    assert "line 1: a history of format 2; this program reads 1" in why_bad(path)
    path.write_bytes(newer + b"}\n")  # another way to make checksums
    assert "line 1: a history of format 2; this program reads 1" in why_bad(path)


@pytest.mark.parametrize("garbage", [b"nonsense\n", b"\x00\xff\n", b"{}\n", b"[]\n", b"\n"])
def test_garbage_is_named(path: Path, garbage: bytes) -> None:
    good = lines(path)
    path.write_bytes(garbage)
    assert "line 1: " in why_bad(path)
    path.write_bytes(b"".join(good[:3]) + garbage + b"".join(good[3:]))
    assert "line 4: " in why_bad(path)
    path.write_bytes(b"".join(good) + garbage)
    assert f"line {len(good) + 1}: something follows the end" in why_bad(path)


def test_right_checksums_do_not_make_a_history(path: Path) -> None:
    good = texts(path)
    rewrite(path, [b'{"other":1', *good[1:]])
    assert "line 1: " in why_bad(path)
    rewrite(path, [good[0], b'{"i":"one"', *good[2:]])
    assert "line 2: " in why_bad(path)
    rewrite(path, [*good[:2], *good[3:]])
    assert "line 3: row 3, expected 2" in why_bad(path)
    rewrite(path, [*good[:-1], good[-1].replace(b'"end":', b'"end":1')])
    assert "the end: " in why_bad(path)


def test_a_run_that_was_broken_off_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path, header()) as writer:
        writer.append(STORY.rows[0])
    assert "line 3: cut off, the end is missing" in why_bad(path)


def _row(p: int, kind: Kind, f: str) -> Row:
    return Row(0, 0, p, kind, f)


def test_operations_that_do_not_pair_are_refused() -> None:
    pairing = Pairing()
    assert not pairing.take(_row(1, Kind.INVOKE, "poll"))
    assert "while its poll" in pairing.take(_row(1, Kind.INVOKE, "send"))
    assert "did not begin" in pairing.take(_row(1, Kind.OK, "send"))
    assert "did not begin" in pairing.take(_row(2, Kind.OK, "poll"))


def test_a_line_that_does_not_pair_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path, header()) as writer:
        writer.append(_row(1, Kind.OK, "poll"))
        writer.close(1)
    assert "line 2: process 1 ends poll, which it did not begin" in why_bad(path)


def test_rows_are_written_without_what_is_empty(path: Path) -> None:
    assert b'"err"' not in texts(path)[2]
    assert msgspec.json.decode(texts(path)[2] + b"}") == {
        "i": 2, "t": 2_000_000, "p": 1, "type": "invoke", "f": "send", "k": "t/0",
        "v": ["1-1", "1-2"], "key": "a",
    }  # fmt: skip
