"""Long histories are judged within memory, and not far slower than they are parsed."""

import pytest

from jepsen_tests.checkers import bench
from jepsen_tests.checkers.bench import PEAK_MIB_MAX, RATIO_MIN, measure

OPERATIONS = 50_000
"""`make chaos-bench` takes a million."""


@pytest.mark.slow
def test_long_histories_are_judged_in_time() -> None:
    found = measure(OPERATIONS)
    assert found.operations >= OPERATIONS
    assert (found.verdict, found.said) == ("valid", [])
    assert found.peak_mib <= PEAK_MIB_MAX
    # `make chaos-bench` judges the speed; what is of another order shows on a busy machine, too.
    assert found.ratio >= RATIO_MIN / 5, found.describe()


def test_what_is_too_slow_or_too_large_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = bench.Measured(10, 20, 1.0, "valid", 1.0, 11.0, 2.0, [0.09], 100.0, [])
    large = slow._replace(ratios=[0.5], peak_mib=PEAK_MIB_MAX + 1)
    assert not slow.is_enough
    assert not large.is_enough
    assert slow._replace(ratios=[0.09, 0.2, 0.1]).is_enough  # the median counts
    assert not slow._replace(ratios=[0.2], verdict="invalid").is_enough
    assert "speed of parsing 0.090 (at least 0.1), by rounds 0.090" in slow.describe()
