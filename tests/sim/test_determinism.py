"""The same seed gives the same history: in any process, under any hash seed, without numpy too.

Goal: a failing seed can be replayed. Method: the trace hash covers every message, fault and event.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.sim.run import run_seed

ROOT = Path(__file__).parents[2]
SEED = 34
"""Consumer groups share a topic in it, too."""


def _run_elsewhere(hash_seed: str, *, without: str = "") -> dict[str, object]:
    code = (
        "import json, dataclasses, sys\n"
        f"sys.modules[{without!r}] = None\n"
        "from tests.sim.run import run_seed\n"
        f"result = run_seed({SEED})\n"
        "assert result.report is not None, result.failure\n"
        "print(json.dumps(dataclasses.asdict(result.report)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, object] = json.loads(done.stdout)
    return report


def test_a_seed_has_one_history_whatever_the_process() -> None:
    """Report and trace hash are equal in processes with different hash seeds, and here.

    Members use numpy where it is installed; one of the processes cannot import it.
    """
    one = _run_elsewhere("1")
    two = _run_elsewhere("4242", without="numpy")
    assert one == two
    here = run_seed(SEED).report
    assert here is not None
    assert here.trace_hash == one["trace_hash"]


def test_two_seeds_have_two_histories() -> None:
    """Or the hash would prove nothing."""
    one, two = run_seed(SEED).report, run_seed(SEED + 1).report
    assert one is not None
    assert two is not None
    assert one.trace_hash != two.trace_hash
