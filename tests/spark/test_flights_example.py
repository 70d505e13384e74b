"""The flights example that README names, on the first rows: real group, exports and Spark."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "flights_spark.py"
ROWS = 20_000


def test_the_flights_are_exported_and_counted(tmp_path: Path) -> None:
    """It compares every count with the source itself, and ends with 1 when one differs."""
    picture = tmp_path / "flights.png"
    ended = subprocess.run(
        [
            sys.executable, str(EXAMPLE), "--folder", str(tmp_path / "data"),
            "--picture", str(picture), "--rows", str(ROWS),
        ],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "all counts agree with the source" in ended.stdout
    assert f"{ROWS:,} rows written and exported" in ended.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
