"""A free port for a test that listens on one."""

from dledger_proto.network.ports import free_ports


def free_port() -> int:
    """Return a TCP port of the loopback interface on which no process listens now."""
    return free_ports(1)[0]
