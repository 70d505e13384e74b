"""The page about many runs: each is judged again, and who left nothing to judge is named."""

import json
from pathlib import Path

import pytest

from jepsen_tests import cli
from jepsen_tests.checkers.shared.judgement import Valid
from jepsen_tests.suite.results import markdown_table, runs_below, summary
from tests.unit.jepsen.model import valid_story
from tests.unit.jepsen.stories import Story
from tests.unit.jepsen.test_row_schema import written


def run_in(folder: Path, story: Story, said: str = "") -> Path:
    folder.mkdir(parents=True)
    written(folder, story.rows, least_ok={"send": [1, 0.01]})
    if said:
        (folder / "results.json").write_text(json.dumps({"verdict": said}))
    return folder


def wrong() -> Story:
    return Story().send(1, "1-1", 0).final("7-7")


def test_verdicts_are_those_of_the_histories(tmp_path: Path) -> None:
    run_in(tmp_path / "one", valid_story(3), "invalid")
    run_in(tmp_path / "two", wrong(), "valid")
    run_in(tmp_path / "three", valid_story(4))
    run_in(tmp_path / "four", valid_story(5), "valid")
    page, unjudged = summary([tmp_path])
    assert unjudged == 0
    verdicts = [line.split("|")[-2].strip() for line in page.splitlines() if "| story |" in line]
    assert verdicts == [
        "valid", "valid (at the time of the run: invalid)", "valid",
        "invalid (at the time of the run: valid)",
    ]  # fmt: skip
    assert "4 runs, " in page
    assert "- acknowledged messages lost (C1, C2, C3): 2" in page


def test_a_run_with_tls_is_told_apart(tmp_path: Path) -> None:
    for name, notes in (("one", {"secure": True}), ("two", {"secure": False}), ("three", {})):
        (tmp_path / name).mkdir()
        written(tmp_path / name, valid_story(3).rows, least_ok={"send": [1, 0.01]}, **notes)
    rows = [line.split("|") for line in summary([tmp_path])[0].splitlines() if "| story |" in line]
    assert [row[2].strip() for row in rows] == ["none, 3, TLS", "none, 3", "none, 3"]


def test_what_was_said_at_first_outlives_every_check(tmp_path: Path) -> None:
    run = run_in(tmp_path / "one", wrong(), "valid")
    for _ in range(2):
        assert cli.main(["check", str(run / "history.jsonl")]) == 1
    assert "| invalid (at the time of the run: valid) |" in summary([tmp_path])[0]


def test_histories_are_no_markup() -> None:
    [*_, line] = markdown_table(["a"], [["<script>&|"]])
    assert line == "| &lt;script&gt;&amp;\\| |"


def test_a_run_without_a_verdict_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_in(tmp_path / "good", valid_story(3))
    cut = run_in(tmp_path / "cut", valid_story(3), "valid") / "history.jsonl"
    cut.write_bytes(b"".join(cut.read_bytes().splitlines(keepends=True)[:-1]))
    (run_in(tmp_path / "none", valid_story(3), "valid") / "history.jsonl").unlink()
    (tmp_path / "20300101-120000-log-7" / "n1").mkdir(parents=True)
    assert cli.main(["results", str(tmp_path)]) == 3
    page = capsys.readouterr().out
    assert "1 runs, " in page
    assert f"| {tmp_path}/cut | line " in page
    assert "cut off, the end is missing |" in page
    assert f"| {tmp_path}/none | the run left no history |" in page
    assert f"| {tmp_path}/20300101-120000-log-7 | the run left no history |" in page
    assert cli.main(["results", str(tmp_path / "good")]) == 0


def test_runs_that_all_have_none_are_named_too(tmp_path: Path) -> None:
    (tmp_path / "20300101-120000-log-7").mkdir()
    page, unjudged = summary([tmp_path])
    assert unjudged == 1
    assert "Without a verdict:" in page


def test_a_run_is_counted_once(tmp_path: Path) -> None:
    run = run_in(tmp_path / "20300101-120000-log-7", valid_story(3), str(Valid.YES))
    assert runs_below(tmp_path) == runs_below(run) == {run}
    assert summary([tmp_path, run])[0].count("| story |") == 1


def test_results_that_make_no_sense_are_not_believed(tmp_path: Path) -> None:
    for number, text in enumerate(("", "[]", "[" * 100_000, '{"verdict": 5}')):
        run = run_in(tmp_path / str(number), valid_story(3))
        (run / "results.json").write_text(text)
    page, unjudged = summary([tmp_path])
    assert unjudged == 0
    assert page.count("| story |") == 4


def test_who_waited_for_several_faults_is_counted_apart(tmp_path: Path) -> None:
    """A fault in force with another, or before another was recovered from, tells nothing alone."""
    story = Story()
    story.fault("kill").fault("heal", "").wait(1_000).send(1, "1-1", 0)
    story.fault("pause").fault("isolate").fault("heal", "").wait(2_000).send(1, "1-2", 1)
    run_in(tmp_path / "one", story.final("1-1 1-2"))
    page, _ = summary([tmp_path])
    assert "| kill | 1 | 1.00 | 1.00 | 0 |  |  |" in page
    assert "| pause | 0 |  |  | 1 | 2.01 | 2.01 |" in page
    assert "| isolate | 0 |  |  | 1 | 2.00 | 2.00 |" in page
