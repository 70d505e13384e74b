"""What a history's lines may hold, and that nothing in them becomes code of a page or terminal."""

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.control import Control
from rich.table import Table
from rich.text import Text

from jepsen_tests.cli import main
from jepsen_tests.history.events import Kind, Row
from jepsen_tests.history.history_file import BadHistory, HistoryWriter, read_history
from jepsen_tests.history.row_schema import ROW_SCHEMAS
from jepsen_tests.suite.results import markdown_table
from jepsen_tests.terminal import Terminal
from tests.unit.jepsen.member_anomalies import entries, status
from tests.unit.jepsen.model import valid_story
from tests.unit.jepsen.stories import Story, header
from tests.unit.jepsen.test_history import rewrite


def written(folder: Path, rows: list[Row], **notes: Any) -> Path:
    path = folder / "history.jsonl"
    with HistoryWriter(path, header(**notes)) as writer:
        for row in rows:
            writer.append(row)
        writer.close(rows[-1].t if rows else 0)
    return path


def why_bad(folder: Path, rows: list[Row], **notes: Any) -> str:
    with pytest.raises(BadHistory) as caught:
        read_history(written(folder, rows, **notes))
    return str(caught.value)


@pytest.mark.parametrize("seed", range(5))
def test_valid_histories_fit(tmp_path: Path, seed: int) -> None:
    story = valid_story(seed)
    assert read_history(written(tmp_path, story.rows)).ops == story.history().ops


STATUS, ENTRIES = status(), entries([7, 8])
CALL: dict[str, Any] = {
    "value": "1-1", "offset": 0, "read": ["t/0", 0], "consumer": "c", "order": "queue",
    "epoch": 1, "attempts": 0, "begun": 5,
}  # fmt: skip
WRONG: list[tuple[str, Any, Any, str]] = [
    # function, what is asked, what came of it, what is said
    ("send", [], [0, 1], 'v of send (invoke) is [], allowed is a list of values without "!"'),
    ("send", ["!1-1"], [0, 1], 'v of send (invoke) is ["!1-1"], allowed is a list of values'),
    ("send", "1-1", [0, 1], 'v of send (invoke) is "1-1"'),
    ("send", ["1-1", 5], [0, 1], 'v of send (invoke) is ["1-1",5]'),
    ("send", ["1-1"], None, "v of send (ok) is null, allowed is [offset of the first value, term"),
    ("send", ["1-1"], [-1, 0], "v of send (ok) is [-1,0]"),
    (
        "send",
        ["1-1"],
        [None, 3],
        "v of send (ok) is [null,3], allowed is [offset of the first value",
    ),
    ("send", ["1-1"], [None, None], "v of send (ok) is [null,null]"),
    ("send", ["1-1"], [0, None], "v of send (ok) is [0,null]"),
    ("zombie-send", ["1-1"], [None, 1], "v of zombie-send (ok) is [null,1]"),
    ("zombie-send", ["1-1"], [1], "v of zombie-send (ok) is [1]"),
    ("assign", {"t": 0}, None, 'v of assign (invoke) is {"t":0}'),
    ("assign", {"t/0": -1}, None, 'v of assign (invoke) is {"t/0":-1}'),
    ("poll", 1, [], "v of poll (invoke) is 1, allowed is null"),
    ("poll", None, [["t/0", 0, []]], "v of poll (ok) is"),
    ("poll", None, [["t/0", "0", ["1-1"]]], "v of poll (ok) is"),
    ("trim", -5, 0, "v of trim (invoke) is -5, allowed is an offset: a number from 0 on"),
    ("poll", None, [["t", 0, ["1-1"]]], 'the place of a run of poll is "t", allowed is a place'),
    ("poll", None, [["t/0\n", 0, ["1-1"]]], 'the place of a run of poll is "t/0\\n", allowed is'),
    ("bounds", None, [1], "v of bounds (ok) is [1], allowed is [minimum, maximum]"),
    ("bounds", None, [9, 3], "v of bounds (ok) is [9,3], allowed is [minimum, maximum], the first"),
    ("one-way", ["1-1", "1-2"], None, 'v of one-way (invoke) is ["1-1","1-2"], allowed is one'),
    ("lookup", -1, [], "v of lookup (invoke) is -1, allowed is an offset"),
    ("lookup", 0, [["t/0", 0, "1-1"]], "v of lookup (ok) is"),
    ("lookup", 0, [["t", 0, "1-1", 5]], 'the place of a run of lookup is "t", allowed is a place'),
    ("by-time", None, 0, "v of by-time (invoke) is null, allowed is a number of 64 bits"),
    ("stamps", None, [[0, 0, 5]], "v of stamps (ok) is [[0,0,5]], allowed is"),
    ("hold", {"owner": "o", "offset": 1}, 5, "v of hold (invoke) is"),
    ("hold", {"owner": "o", "offset": 1, "ttl_ms": 0}, 5, "v of hold (invoke) is"),
    ("release", "", None, 'v of release (invoke) is "", allowed is a text that is not empty'),
    ("delay", ["1-1", "1-2"], 5, 'v of delay (invoke) is ["1-1","1-2"], allowed is one value'),
    ("delay", ["1-1"], None, "v of delay (ok) is null, allowed is when it is due"),
    ("recall", "", None, 'v of recall (invoke) is "", allowed is a text that is not empty'),
    ("handle", CALL | {"order": "any"}, ["done", 5], "v of handle (invoke) is"),
    ("handle", CALL | {"read": ["t", 0]}, ["done", 5], "v of handle (invoke) is"),
    ("handle", CALL, ["well", 5], "v of handle (ok) is"),
    ("floors", None, {"t": 5}, "v of floors (ok) is"),
    ("caught-up", None, {"t/0": -1}, "v of caught-up (ok) is"),
    ("letters", None, [["t/0", 0, 1]], "v of letters (ok) is"),
    ("letters-resent", None, -1, "v of letters-resent (ok) is -1, allowed is an offset"),
    ("commit", 1.5, None, "v of commit (invoke) is 1.5"),
    ("committed", None, "7", 'v of committed (ok) is "7", allowed is a number or null'),
    ("set", None, None, "v of set (invoke) is null, allowed is a number"),
    ("get", None, [], "v of get (ok) is []"),
    ("drain", None, {}, "v of drain (ok) is {}"),
    ("drain", None, [["u/1", 0, ["1-1"]]], 'place of a run of drain is "u/1", allowed is t/0'),
    ("status", None, STATUS | {"term": -1}, "v of status (ok) is"),
    ("status", None, {"role": "leader"}, "allowed is role, term, leader, commit"),
    ("entries", None, ENTRIES | {"crcs": []}, "v of entries (ok) is"),
    ("resources", None, {"rss": 1}, 'v of resources (ok) is {"rss":1}, allowed is rss, files'),
]
KEYS = dict.fromkeys(("floors", "caught-up", "letters", "letters-resent"), "g") | {
    "handle": "g@t/0",
    "commit": "g@t/0",
    "committed": "g@t/0",
    "set": "r",
    "get": "r",
}


def _key(f: str) -> str:
    shape = ROW_SCHEMAS[f]
    return KEYS.get(f, "t/0" if "place" in shape.k.said else "")


@pytest.mark.parametrize(("f", "asked", "found", "said"), WRONG)
def test_a_value_that_does_not_fit_is_named(
    tmp_path: Path, f: str, asked: Any, found: Any, said: str
) -> None:
    story = Story().invoke(1, f, _key(f), asked, node="n1").end(1, found)
    line = 2 if "(invoke)" in said else 3
    assert f"line {line}: " in why_bad(tmp_path, story.rows)
    assert said in why_bad(tmp_path, story.rows)


@pytest.mark.parametrize(
    ("f", "k", "said"),
    [
        ("bounds", "t", 'k of bounds (invoke) is "t", allowed is a place: "topic/queue"'),
        ("bounds", "t/x", 'k of bounds (invoke) is "t/x"'),
        ("bounds", "t/0\n", 'k of bounds (invoke) is "t/0\\n", allowed is a place'),
        ("bounds", "a\nb/0", 'k of bounds (invoke) is "a\\nb/0"'),
        ("bounds", "t/00", 'k of bounds (invoke) is "t/00"'),
        ("committed", "g\n@t/0", 'k of committed (invoke) is "g\\n@t/0"'),
        ("committed", "g@t/0\n", 'k of committed (invoke) is "g@t/0\\n"'),
        ("get", "r\n", 'k of get (invoke) is "r\\n", allowed is the name of a register'),
        ("committed", "t/0", 'allowed is a register: "group@topic/queue"'),
        ("get", "", "allowed is the name of a register"),
        ("poll", "t/0", 'k of poll (invoke) is "t/0", allowed is empty'),
        ("pol", "", 'f is "pol", allowed are send, resend'),
        ("pol", "", "did somebody mean poll, or is it of a newer program?"),
    ],
)
def test_a_key_or_function_that_does_not_fit_is_named(
    tmp_path: Path, f: str, k: str, said: str
) -> None:
    assert said in why_bad(tmp_path, [Row(0, 1, 1, Kind.INVOKE, f, k)])


def test_other_fields_that_do_not_fit_are_named(tmp_path: Path) -> None:
    ends = Story().invoke(1, "poll").end(1, [], kind=Kind.FAIL).rows
    assert "v of poll (fail) is [], allowed is null" in why_bad(tmp_path, ends)
    asked = [Row(0, 1, 1, Kind.INVOKE, "status", node="n9")]
    assert 'node of status is "n9", allowed are n1, n2, n3' in why_bad(tmp_path, asked)
    assert "p is -7" in why_bad(tmp_path, [Row(0, 1, -7, Kind.INVOKE, "poll")])
    assert 'k of a phase is "end"' in why_bad(tmp_path, Story().phase("end").rows)
    assert "f of the nemesis is" in why_bad(tmp_path, [Row(0, 1, -1, Kind.OK, "<script>")])


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (("send", "t/0", ["1-1"]), 'v of send is ["1-1"], allowed are values that were never sent'),
        (("send", "t/1", ["1-9", "1-2"]), 'v of send is ["1-9","1-2"], allowed are values that'),
        (("send", "t/0", ["1-8", "1-8"]), 'v of send is ["1-8","1-8"], allowed are values that'),
        (("zombie-send", "t/0", ["1-1"]), 'v of zombie-send is ["1-1"], allowed are values that'),
        (("resend", "t/1", ["1-1", "1-2"]), "allowed is what was sent to t/1 before"),
        (("resend", "t/0", ["1-1"]), 'v of resend is ["1-1"], allowed is what was sent to t/0'),
        (("resend", "t/0", ["1-3"]), 'v of resend is ["1-3"], allowed is what was sent to t/0'),
        (("resend", "t/0", ["1-1", "1-2"]), ""),
        (("send", "t/1", ["1-3"]), ""),
    ],
)
def test_a_value_is_sent_once_and_repeated_as_it_was(
    tmp_path: Path, again: tuple[str, str, list[str]], said: str
) -> None:
    story = Story().lose(1, "1-1 1-2").invoke(2, *again)
    if said:
        assert "line 4: " in (why := why_bad(tmp_path, story.rows))
        assert said in why
    else:
        assert len(read_history(written(tmp_path, story.rows)).ops) == 2


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Row(0, 2, 1, Kind.OK, "drain", v=[], node="zz"), "node of drain (ok) is"),
        (Row(0, 2, 1, Kind.OK, "drain", v=[], node="n2"), '"n2", it began as n1'),
        (Row(0, 2, 1, Kind.OK, "drain", "t/1", v=[]), 'k of drain (ok) is "t/1", it began as t/0'),
        (Row(0, 2, 2, Kind.INVOKE, "poll", node="n9"), 'node of poll is "n9", allowed are n1, n2'),
        (Row(0, 2, -1, Kind.OK, "died", "n9"), 'k of died is "n9", allowed are n1, n2, n3'),
        (Row(0, 2, -1, Kind.FAIL, "kill", "n1"), "type of the nemesis's kill is fail"),
    ],
)
def test_a_row_that_does_not_fit_what_there_is_is_named(
    tmp_path: Path, row: Row, said: str
) -> None:
    rows = [Row(0, 1, 1, Kind.INVOKE, "drain", "t/0", node="n1"), row]
    why = why_bad(tmp_path, rows)
    assert "line 3: " in why
    assert said in why


def test_time_that_goes_back_is_named(tmp_path: Path) -> None:
    rows = [Row(0, 5, 1, Kind.INVOKE, "poll"), Row(0, 5, 1, Kind.OK, "poll", v=[])]
    path = written(tmp_path, rows)
    text = path.read_bytes().replace(b'"i":2,"t":5', b'"i":2,"t":4')
    path.write_bytes(text)
    rewrite(path, [line[: -len(',"crc":"00000000"}\n')] for line in text.splitlines(keepends=True)])
    with pytest.raises(BadHistory, match="line 3: t is 4, allowed is 5 or later"):
        read_history(path)


@pytest.mark.parametrize(
    "notes", [{"budgets": {"kill": "x"}}, {"errors": 5}, {"least_ok": {"send": [1, 7.0]}}]
)
def test_notes_that_do_not_fit_are_named(tmp_path: Path, notes: dict[str, Any]) -> None:
    assert "line 1: notes: " in why_bad(tmp_path, [], **notes)


def test_a_field_of_a_newer_program_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    head = msgspec.json.encode(header())[:-1]
    rewrite(path, [head, b'{"i":1,"t":1,"p":1,"type":"invoke","f":"poll","colour":"red"'])
    with pytest.raises(BadHistory, match="line 2: Object contains unknown field `colour`"):
        read_history(path)


COMMANDS = "\x1b[2J\x1b]0;mine\x07\x9b31m\u202e\r\nvalid"
SHOWN = r"\x1b[2J\x1b]0;mine\x07\x9b31m\u202e\r\nvalid"


def test_nothing_of_a_history_commands_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "400")
    value = f"9-1{COMMANDS}"
    story = Story().phase("faults").begin_send(2, "2-1").end(2, kind=Kind.INFO, err=COMMANDS)
    story.rows[1].v = [value]
    path = written(tmp_path, story.poll(3, (0, "7-7")).poll(4, (0, "7-8")).rows, errors=["X"])
    assert main(["check", str(path)]) == 1
    said = capsys.readouterr().err
    assert SHOWN in said
    assert "\x1b[2J" not in said.replace(SHOWN, "")
    assert not set("\x07\x9b\u202e\r") & set(said)
    assert not any(line.startswith("valid") for line in said.splitlines())
    assert "\x1b[" in said  # its own colours


def test_nothing_of_a_bad_history_commands_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, [Row(0, 1, 1, Kind.OK, COMMANDS)])
    assert main(["check", str(path)]) == 3
    said = "".join(capsys.readouterr().err.split())
    assert f"process1ends{SHOWN}" in said
    assert not set("\x1b\x07\x9b\u202e\r") & set(said)


def test_nothing_that_is_printed_commands_a_terminal() -> None:
    out = io.StringIO()
    console = Terminal(file=out, force_terminal=True, width=200, color_system="standard")
    table = Table("head")
    table.add_row(Text(COMMANDS))
    console.print(table)
    console.print(COMMANDS, markup=False, highlight=False)
    console.print("[red]mine[/]")
    console.control(Control.clear())
    said = out.getvalue()
    assert r"\x1b[2J\x1b]0;mine\x9b31m\u202e" in said
    assert "\x1b[31mmine" in said
    assert said.endswith("\x1b[2J")
    assert said.count("\x1b[2J") == 1
    assert not set("\x07\x9b\u202e\r") & set(said)


def test_a_cell_of_markdown_stays_one() -> None:
    rows = markdown_table(("a", "b"), [(f"x|{COMMANDS}", 1)])
    assert rows[2] == rf"| x\|{SHOWN} | 1 |"


EVIL = "<script>alert(1)</script>[bold]$x^$[/]"


def test_nothing_of_a_history_is_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story().phase("faults").send(1, "1-1", 0).fault("kill", EVIL)
    story.begin_send(2, EVIL.replace(" ", "")).end(2, kind=Kind.INFO, err=f"{EVIL}: x")
    story.poll(3, (0, f"!{EVIL}")).poll(3, (1, EVIL)).invoke(5, "set", EVIL, 1).end(5)
    story.op(6, "get", EVIL, None, 7).phase("final").final("1-1")
    path = written(tmp_path, story.rows, errors=["X"])
    assert main(["check", str(path)]) == 1
    page = path.with_name("report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "[bold]" in capsys.readouterr().err.replace("\n", "")
