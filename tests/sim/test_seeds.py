"""A budgeted share of `make sim`: a few dozen seeds of every group size, within minutes.

Goal: a broken promise shows up in the ordinary test run. Method: seeds one after the other until
the budget of CPU is used; at least SEEDS_MIN, whatever they cost.
"""

import time
from typing import Final

import pytest

from tests.sim.run import missed_floors, run_seed

BUDGET_CPU_SECONDS: Final = 110.0
SEEDS_MIN: Final = 10
SEEDS_MAX: Final = 60


@pytest.mark.slow
def test_seeds_keep_every_promise_and_converge() -> None:
    """See the module header."""
    began = time.process_time()
    results = []
    for seed in range(SEEDS_MAX):
        if seed >= SEEDS_MIN and time.process_time() - began > BUDGET_CPU_SECONDS:
            break
        result = run_seed(seed)
        assert not result.failure, f"{result.page}\nreplay: make sim SEED={seed}"
        results.append(result)
    reports = [result.report for result in results if result.report is not None]
    acknowledged = sum(report.counts["acknowledged batches"] for report in reports)
    changes = sum(report.counts["leader changes"] for report in reports)
    assert acknowledged >= 200 * len(reports), "the seeds hardly wrote anything"
    assert changes >= 3 * len(reports), "the seeds hardly disturbed anything"
    assert not missed_floors(results)
