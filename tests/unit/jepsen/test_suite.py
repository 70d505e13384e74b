"""What the suites hold."""

from jepsen_tests.backends.links import LinkProxies
from jepsen_tests.backends.surface import Kind
from jepsen_tests.nemeses import FAULTS, LOSING
from jepsen_tests.suite import NIGHTLY, SMOKE
from jepsen_tests.workloads import WORKLOADS

NOT_BY_PROXIES = {"loss"}
"""What the process backend cannot do to its links."""


def test_smoke_has_every_fault_that_the_process_backend_can_do() -> None:
    assert Kind.LOSS not in LinkProxies.kinds
    assert {fault for entry in SMOKE for fault in entry.faults} == set(FAULTS) - NOT_BY_PROXIES


def test_every_entry_names_what_there_is() -> None:
    for entry in (*SMOKE, *NIGHTLY):
        assert entry.workload in WORKLOADS
        assert set(entry.faults) <= set(FAULTS)
        assert not (WORKLOADS[entry.workload]().trims and LOSING & set(entry.faults)), entry


def test_both_suites_use_every_workload() -> None:
    assert {entry.workload for entry in SMOKE} == set(WORKLOADS)
    assert {entry.workload for entry in NIGHTLY} == set(WORKLOADS)
