"""What the demo says of its faults."""

from dledger_broker.demo.report import Acknowledgement, Fault, idle_faults, with_gap


def _acknowledged(*times_s: float) -> list[Acknowledgement]:
    return [Acknowledgement(at_s, 1, 0.01) for at_s in times_s]


def test_a_gap_is_the_longest_silence_that_begins_at_the_fault() -> None:
    acknowledged = _acknowledged(0.5, 1.0, 1.1, 3.1, 3.2, 9.0)
    assert with_gap(Fault(1.05, "leader killed", "n1", 0.0), acknowledged).gap_s == 2.0
    assert with_gap(Fault(0.6, "leader killed", "n1", 0.0), _acknowledged(0.5, 0.7)).gap_s == 0.2


def test_a_fault_that_met_no_load_is_a_problem() -> None:
    faults = [Fault(1.0, "leader killed", "n1", 0.0), Fault(2.0, "all killed", "n1, n2", 0.0)]
    assert idle_faults(faults, _acknowledged(0.5, 3.0)) == []
    (said,) = idle_faults(faults, _acknowledged(0.5, 1.5))
    assert said.startswith("all killed at 2.0 s met no load")
    assert len(idle_faults(faults, [])) == 2
