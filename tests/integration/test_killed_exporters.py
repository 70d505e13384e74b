"""Real processes, killed at random moments, alone and two at once.

Goal: nothing of it depends on Python's own clean-up. Method: a dozen kills here; `make
export-kills` does it 150 times.
"""

from pathlib import Path

from tests.programs.killed_exporters import check, kill_some

KILLS = 12


def test_killed_exporters_leave_every_record_once(tmp_path: Path) -> None:
    """Drivers, workers, whole process groups; what is left is finished by a last run."""
    root = tmp_path / "lake"
    end = kill_some(root, KILLS, seed=1)
    rows, versions = check(root, end)
    assert rows == end + end // 2 + end // 5
    assert versions >= 1
