"""What a local cluster is given."""

from dledger_broker.local.cluster import free_ports


def test_ports_differ_however_many_are_asked_for() -> None:
    assert len(set(free_ports(500))) == 500
