"""Tables on a terminal of 80 columns, and on none: no column, row or part of a cell is lost."""

import io
from collections.abc import Sequence

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from dledger_broker.cli.cluster.status import COLUMNS
from dledger_broker.cli.messages.bench import Load
from dledger_broker.cli.output import print_rows
from dledger_broker.cli.tables import Row, Rows

MEMBER: Row = {
    "member": "n1", "address": "127.0.0.1:29877", "role": "follower", "term": 12, "leader": "n2",
    "match_index": 12_345_678, "commit": 12_345_678, "applied": 12_345_678, "lag": 0,
    "flush": "sync", "reason": "",
}  # fmt: skip
REASON = "cannot be reached at its address, and the leader has not heard it for an hour and more"


def drawn(
    rows: Sequence[Row], columns: tuple[str, ...], width: int = 80, title: str = ""
) -> list[str]:
    """The lines that a terminal shows, without trailing blanks."""
    out = io.StringIO()
    screen = Console(file=out, force_terminal=True, no_color=True, width=width, soft_wrap=True)
    with screen.capture() as shown:
        screen.print(Rows(rows, columns, title))
    return [line.rstrip() for line in Text.from_ansi(shown.get()).plain.splitlines()]


def test_what_fits_is_a_table() -> None:
    assert drawn([MEMBER], ("member", "match_index", "reason"), title="g") == [
        "g",
        "member  match index  reason",
        "n1         12345678",
    ]


def test_a_status_of_three_members_fits_80_columns_with_all_its_fields() -> None:
    rows = [MEMBER, {**MEMBER, "member": "n2"}, {**MEMBER, "member": "n3", "match_index": None}]
    lines = drawn(rows, COLUMNS)
    assert max(map(cell_len, lines)) <= 80
    assert [line.split()[0] for line in lines] == [name.split("_")[0] for name in COLUMNS]
    assert lines[0].split() == ["member", "n1", "n2", "n3"]
    assert lines[1].split() == ["address", *["127.0.0.1:29877"] * 3]
    assert lines[5].split() == ["match", "index", "12345678", "12345678", "-"]


@pytest.mark.parametrize("width", [30, 60, 80, 100, 200])
def test_nothing_is_lost_at_any_width(width: int) -> None:
    rows = [{**MEMBER, "member": f"n{number}", "reason": REASON} for number in range(7)]
    lines = drawn(rows, COLUMNS, width)
    assert max(map(cell_len, lines)) <= width
    shown = "".join("".join(lines).split())
    assert all(f"n{number}" in shown for number in range(7))
    assert shown.count("12345678") == 3 * 7
    words = REASON.split()
    assert all("".join(lines).count(word) >= 7 for word in words if len(word) < 6)


def test_a_long_text_alone_is_folded_in_its_table() -> None:
    lines = drawn([{"queue": 1, "problem": "x" * 100}], ("queue", "problem"), 40)
    assert lines[0].split() == ["queue", "problem"]
    assert sum(line.count("x") for line in lines) == 100
    assert max(map(len, lines)) <= 40


def test_no_terminal_has_no_width(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{**MEMBER, "reason": REASON * 50}], COLUMNS, as_json=False)
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["member", "address", "role"]
    assert row.rstrip().endswith(REASON)


def test_a_bench_of_nothing_has_no_latency_rather_than_a_text() -> None:
    load = Load("t", 1.0, b"x", ["127.0.0.1:1"], 1.0)
    row = load.summary("read", 1.0)
    assert [row[name] for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms", "gap_ms")] == [None] * 5


def test_a_bench_fits_80_columns() -> None:
    row = Load("t", 1.0, b"x", ["127.0.0.1:1"], 1.0).summary("batched", 1.0)
    lines = drawn([row, row, row], tuple(row))
    assert max(map(cell_len, lines)) <= 80
    shown = " ".join(lines)
    assert all(column.replace("_", " ") in shown for column in row)


def test_tables_show_what_looks_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"address": "[fd00::1]:10911"}, {"address": "[/x]:1"}]
    print_rows(rows, ["address"], as_json=False, title="[/x]")
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "[/x]",
        "address",
        "[fd00::1]:10911",
        "[/x]:1",
    ]
