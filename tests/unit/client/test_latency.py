"""For how long a slow group is avoided (S36), and which queue is chosen then (S37)."""

import pytest

from dledger_client.latency import TABLE_4X, TABLE_5X, FaultTable, LatencyTable, pick


@pytest.mark.parametrize(
    ("latency_ms", "ban_ms"),
    [
        (0, 0),
        (49, 0),
        (99, 0),
        (100, 0),
        (549, 0),
        (550, 30_000),
        (999, 30_000),
        (1_000, 60_000),
        (2_000, 120_000),
        (2_999, 120_000),
        (3_000, 180_000),
        (3_300, 180_000),
        (15_000, 600_000),
        (60_000, 600_000),
    ],
)
def test_table_4x(latency_ms: int, ban_ms: int) -> None:
    assert TABLE_4X.ban_ms(latency_ms) == ban_ms


@pytest.mark.parametrize(
    ("latency_ms", "ban_ms"),
    [
        (49, 0),
        (549, 0),
        (550, 2_000),
        (1_799, 2_000),
        (1_800, 5_000),
        (3_000, 6_000),
        (3_300, 6_000),
        (5_000, 10_000),
        (14_999, 10_000),
        (15_000, 30_000),
    ],
)
def test_table_5x(latency_ms: int, ban_ms: int) -> None:
    assert TABLE_5X.ban_ms(latency_ms) == ban_ms


def test_a_failed_send_counts_as_the_failure_latency_of_its_table() -> None:
    for table, ban_ms in ((TABLE_4X, 600_000), (TABLE_5X, 10_000)):
        faults = FaultTable(table)
        faults.failed("a", 1_000)
        assert not faults.is_available("a", 1_000 + ban_ms - 1)
        assert faults.is_available("a", 1_000 + ban_ms)
        assert faults.is_available("b", 0)
        faults.answered("a", 10, 2_000)
        assert faults.is_available("a", 2_000)


def test_pick_prefers_available_then_reachable_then_any() -> None:
    queues = ["a0", "a1", "b0", "c0"]
    banned = {"a"}
    dead = {"c"}

    def choose(start: int) -> str:
        return pick(queues, start, lambda q: q[0] not in banned, lambda q: q[0] not in dead)

    assert [choose(start) for start in range(5)] == ["b0", "b0", "b0", "b0", "b0"]
    banned.add("b")
    assert [choose(start) for start in range(4)] == ["a0", "a1", "b0", "a0"]
    dead |= {"a", "b"}
    assert [choose(start) for start in range(4)] == queues  # all banned and dead: it still sends


@pytest.mark.parametrize(
    ("limits", "bans"), [((), ()), ((1, 2), (0,)), ((2, 1), (0, 0)), ((1, 1), (0, 0))]
)
def test_bad_tables_are_refused(limits: tuple[int, ...], bans: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="latency table"):
        LatencyTable(limits, bans, 1)
