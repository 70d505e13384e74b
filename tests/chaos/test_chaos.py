"""The harness as users run it: real processes, real faults, a verdict; and it can say no."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 300


def run(out: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run the harness; return exit code, results, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "jepsen_tests", "run", *arguments, "--out", str(out)],
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX,
    )  # fmt: skip
    said = done.stdout + done.stderr
    found = list(out.glob("*/results.json"))
    assert found, said
    return done.returncode, json.loads(found[0].read_text()), said


def left_behind(out: Path) -> list[str]:
    """Return processes, mounts and disks of a run that are still there."""
    processes: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(out) in command:
            processes.append(command)
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(out) in line]
    return processes + mounts + [each for each in attached() if str(out) in each]


def attached() -> list[str]:
    """Return the files behind loop devices, also of those that are mounted where we don't see."""
    return [
        path.read_text().strip()
        for path in Path("/sys/block").glob("loop*/loop/backing_file") if path.exists()
    ]  # fmt: skip


@pytest.mark.slow
def test_a_sound_cluster_is_valid_and_nothing_is_left_behind(tmp_path: Path) -> None:
    code, results, said = run(
        tmp_path, "--workload", "log", "--nemesis", "kill,isolate", "--time", "20", "--seed", "5"
    )
    assert code == 0, said
    assert results["faults"], "no fault was done"
    assert results["ok"] > 200
    assert list(tmp_path.glob("*/report.html"))
    # The kernel takes a mount namespace away a moment after the last process in it.
    wait_until(lambda: left_behind(tmp_path) == [], "nothing is left behind")


@pytest.mark.slow
def test_a_known_bug_is_found(tmp_path: Path) -> None:
    code, results, said = run(
        tmp_path, "--workload", "retry", "--nemesis", "kill-leader", "--time", "10", "--seed", "3",
        "--mutant", "dedup-off",
    )  # fmt: skip
    assert code == 1, said
    wrong = [each["checker"] for each in results["judgements"] if each["valid"] == "invalid"]
    # What is stored twice moves the sequence on: SEQUENCE_GAP (C19) is the same bug's.
    assert "C5" in wrong
    assert set(wrong) <= {"C5", "C19"}
