"""What the demo says of its faults."""

from dledger_broker.demo.gaps import Acknowledgement, Fault, idle_faults, judged, quiet_gap


def _acknowledged(*times_s: float) -> list[Acknowledgement]:
    return [Acknowledgement(at_s, 1, 0.01) for at_s in times_s]


def _steady(
    begin_s: float, end_s: float, rows: int, latency_s: float = 0.02
) -> list[Acknowledgement]:
    """One acknowledgement every 50 ms."""
    count = round((end_s - begin_s) / 0.05)
    return [Acknowledgement(begin_s + step * 0.05, rows, 0.02) for step in range(count)]


def test_a_gap_is_the_longest_silence_that_begins_at_the_fault() -> None:
    acknowledged = _acknowledged(0.5, 1.0, 1.1, 3.1, 3.2, 9.0)
    assert judged([Fault(1.05, "leader killed", "n1")], acknowledged)[0].gap_s == 2.0
    assert judged([Fault(0.6, "leader killed", "n1")], _acknowledged(0.5, 0.7))[0].gap_s == 0.2


def test_a_gap_of_no_fault_is_told() -> None:
    """Also one that begins long after a fault."""
    acknowledged = _acknowledged(0.5, 1.0, 1.1, 3.1, 3.2, 9.0)
    assert quiet_gap([Fault(1.05, "leader killed", "n1")], acknowledged) == 5.8
    assert quiet_gap([], acknowledged) == 5.8
    assert quiet_gap([], []) == 0.0


def test_the_rate_is_back_when_rows_handed_over_since_come_as_fast_as_before() -> None:
    """Those that waited come at once and say nothing."""
    fault = Fault(2.0, "leader killed", "n1")
    burst = [Acknowledgement(3.0, 5_000, 1.0)]
    slow, fast = _steady(3.05, 4.0, 10), _steady(4.0, 6.0, 100)
    (found,) = judged([fault], [*_steady(0.0, 2.0, 100), *burst, *slow, *fast])
    assert found.gap_s == 1.05
    assert found.back_s is not None
    assert 0.85 <= found.back_s <= 1.0
    (never,) = judged([fault], [*_steady(0.0, 2.0, 100), *burst, *slow])
    assert never.back_s is None


def test_the_rate_must_be_back_before_the_next_fault() -> None:
    faults = [Fault(2.0, "leader killed", "n1"), Fault(3.5, "leader paused", "n2")]
    stream = [*_steady(0.0, 2.0, 100), *_steady(3.0, 3.5, 10), *_steady(3.5, 6.0, 100)]
    first, second = judged(faults, stream)
    assert first.back_s is None
    assert second.back_s is not None


def test_a_fault_that_met_no_load_is_a_problem() -> None:
    faults = [Fault(1.0, "leader killed", "n1"), Fault(2.0, "all killed", "n1, n2")]
    assert idle_faults(faults, _acknowledged(0.5, 3.0)) == []
    (said,) = idle_faults(faults, _acknowledged(0.5, 1.5))
    assert said.startswith("all killed at 2.0 s met no load")
    assert len(idle_faults(faults, [])) == 2
