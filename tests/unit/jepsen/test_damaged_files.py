"""Whatever file `check` is given: a verdict, or exit 3 and a sentence; never a traceback."""

import io
import os
from collections import Counter
from contextlib import redirect_stderr
from pathlib import Path
from random import Random

import pytest

from jepsen_tests import cli
from tests.unit.jepsen.damaged import RAW, damaged, signed, write_damaged
from tests.unit.jepsen.model import valid_story
from tests.unit.jepsen.stories import header
from tests.unit.jepsen.test_row_schema import written

SEEDS = 400
SAID_MAX = 3_000


def said_of(path: Path) -> tuple[int, str]:
    """Return the exit code of a check, and what was said."""
    out = io.StringIO()
    with redirect_stderr(out):
        code = cli.main(["check", str(path)])
    return code, " ".join(out.getvalue().split())


def refused(path: Path) -> str:
    """Check what cannot be judged; return the sentence."""
    code, said = said_of(path)
    assert code == 3
    assert said.startswith("harness: ")
    assert "Traceback" not in said
    assert len(said) < SAID_MAX
    return said


@pytest.fixture
def good(tmp_path: Path) -> bytes:
    """A small history that can be judged."""
    story = valid_story(3, 60)
    notes = {"budgets": {"kill": 9.0}, "errors": ["NOT_LEADER", "DEADLINE", "OFFSET_BEHIND"]}
    path = written(tmp_path, story.rows, **notes)
    assert said_of(path)[0] in (0, 2)
    return path.read_bytes()


def test_a_damaged_history_never_ends_in_a_traceback(tmp_path: Path, good: bytes) -> None:
    codes: Counter[int] = Counter()
    for seed in range(SEEDS):
        path = tmp_path / "history.jsonl"
        write_damaged(path, good, seed)
        code, said = said_of(path)
        codes[code] += 1
        assert "Traceback" not in said, f"seed {seed}: {said}"
        assert "fault of this program" not in said, f"seed {seed}: {said}"
        if code == 3:
            assert said.startswith("harness: "), f"seed {seed}: {said}"
            assert "line" in said or "the end" in said, f"seed {seed}: {said}"
            assert len(said) < SAID_MAX, f"seed {seed}: {len(said)} characters"
    assert codes[3] > SEEDS // 2
    assert set(codes) <= {0, 1, 2, 3}
    assert len(codes) > 1, "some damage only changes what is judged"


def test_damage_is_damage(good: bytes) -> None:
    files = {damaged(good, Random(seed)) for seed in range(100)}
    assert len(files) > 90


@pytest.mark.parametrize("part", [0.0, 0.3, 0.7, 0.999])
def test_one_that_is_cut_is_named(tmp_path: Path, good: bytes, part: float) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_bytes(good[: int(len(good) * part)])
    assert "line" in refused(path)


@pytest.mark.parametrize("raw", [raw for raw in RAW if raw != b"-0"])
@pytest.mark.parametrize("field", ["t", "v", "p"])
def test_a_value_that_is_no_value_is_named(tmp_path: Path, raw: bytes, field: str) -> None:
    path = tmp_path / "history.jsonl"
    fields = {"i": b"1", "t": b"1", "p": b"1", "type": b'"invoke"', "f": b'"set"', "k": b'"r"'}
    row = b",".join(
        b'"%b":%b' % (key.encode(), value) for key, value in {**fields, field: raw}.items()
    )
    head = written(tmp_path, [], **header().notes).read_bytes().splitlines()[0]
    path.write_bytes(signed([head.rpartition(b',"crc"')[0], b"{" + row, b'{"end":1,"t":9']))
    assert ", line 2: " in refused(path)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    assert "name the history.jsonl" in refused(tmp_path)
    assert "No such file" in refused(tmp_path / "none")
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refused(tmp_path / "file" / "history.jsonl")
    os.mkfifo(tmp_path / "pipe")
    assert "name the history.jsonl" in refused(tmp_path / "pipe")


def test_one_that_may_not_be_read_is_named(
    tmp_path: Path, good: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(good)

    def refuse(_path: Path, _console: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(cli, "judge_file", refuse)  # root may read everything
    assert refused(path).replace(" ", "").endswith("history.jsonl:Permissiondenied")


def test_a_fault_of_the_program_is_a_sentence_too(
    tmp_path: Path, good: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(good)

    def broken(_path: Path, _console: object) -> int:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(cli, "judge_file", broken)
    assert (
        "a bug of the harness keeps it from being judged: ZeroDivisionError: oops (test_damaged"
        in refused(path)
    )
