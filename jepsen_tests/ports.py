"""Ports of this machine that members listen on, and will again after a restart.

Those that the kernel gives to outgoing connections are left alone: any program's connection could
take one while its member is down, and the member could not come back. What was given out here is
not given out again, to nobody's runs, as long as this process lives: a name in the abstract
namespace of Unix sockets stands for it, which ends with the process.
"""

import contextlib
import os
import socket
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
LOWEST: Final = 10_240
"""Below are the ports that services are known by."""
HIGHEST: Final = 65_535
OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
OUTGOING_DEFAULT: Final = (32_768, 60_999)

_held: list[socket.socket] = []


def outgoing_range() -> tuple[int, int]:
    """Return the first and the last port that outgoing connections may get."""
    try:
        first, last = OUTGOING.read_text().split()
    except OSError:
        return OUTGOING_DEFAULT
    return int(first), int(last)


def candidates(first: int, last: int, start: int) -> list[int]:
    """Return the ports outside a range, in turn from some `start` on."""
    ports = [port for port in range(LOWEST, HIGHEST + 1) if not first <= port <= last]
    at = start % len(ports) if ports else 0
    return ports[at:] + ports[:at]


def free_ports(count: int) -> list[int]:
    """Return TCP ports that nobody listens on now; OSError when there are not so many."""
    found: list[int] = []
    # Runs that begin at the same time begin at different places.
    for port in candidates(*outgoing_range(), os.getpid() * 101):
        if _take(port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"{count} ports that no outgoing connection gets are wanted: {found} are free")


def _take(port: int) -> bool:
    claim = socket.socket(socket.AF_UNIX)
    with contextlib.ExitStack() as undo:
        undo.callback(claim.close)
        try:
            claim.bind(f"\0dledger-port-{port}")
            with socket.socket() as probe:
                probe.bind((HOST, port))
        except OSError:
            return False
        undo.pop_all()
    _held.append(claim)
    return True
