"""Ports of this machine."""

import socket
from contextlib import ExitStack
from typing import Final

HOST: Final = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Return TCP ports that nobody listens on now."""
    with ExitStack() as stack:
        # All are held until the last is found: a port that was let go may be found again.
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
