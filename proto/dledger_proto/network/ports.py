"""Ports of this machine on which members listen, also again after a restart.

The kernel gives some ports to outgoing connections. Such a port is the last choice: while a member
is down, any program's connection could take its port, and the member could not come back. A socket
of ours that is bound there and does not listen reserves the port (Linux: `connect` passes over
ports that anybody bound by number). On Linux, no other process gets a port from here while this one
lives: a name in the abstract namespace of Unix sockets stands for the port and ends with the
process.
"""

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
LOWEST: Final = 10_240
"""The ports of well-known services lie below."""
HIGHEST: Final = 65_535
OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
OUTGOING_DEFAULT: Final = (32_768, 60_999)

_given: set[int] = set()
_held: list[contextlib.ExitStack] = []
"""The sockets that keep the given ports, until this process ends."""


def outgoing_range() -> tuple[int, int]:
    """Return the first and the last port that outgoing connections may get."""
    try:
        first, last = OUTGOING.read_text().split()
    except OSError:
        return OUTGOING_DEFAULT
    return int(first), int(last)


def candidates(first: int, last: int, start: int) -> list[int]:
    """Return the ports outside a range, beginning with the `start`-th; then those inside."""
    every = range(LOWEST, HIGHEST + 1)
    outside = [port for port in every if not first <= port <= last]
    inside = [port for port in every if first <= port <= last]
    return [*_turned(outside, start), *_turned(inside, start)]


def _turned(ports: list[int], start: int) -> list[int]:
    at = start % len(ports) if ports else 0
    return ports[at:] + ports[:at]


def free_ports(count: int, width: int = 1) -> list[int]:
    """Return different TCP ports of the loopback interface that nobody listens on now.

    Each is the first of `width` consecutive ones that are all free.
    OSError: the machine has not so many.
    """
    found: list[int] = []
    first, last = outgoing_range()
    # Processes that begin at the same time begin at different places.
    for port in candidates(first, last, os.getpid() * 101):
        if len(found) == count:
            break
        wanted = range(port, port + width)
        with contextlib.ExitStack() as sockets:
            if all(_take(one, sockets, is_kept=first <= one <= last) for one in wanted):
                found.append(port)
                _given.update(wanted)
                _held.append(sockets.pop_all())
    if len(found) < count:
        raise OSError(f"{count} free ports are wanted, {len(found)} are free")
    return found


def _take(port: int, sockets: contextlib.ExitStack, *, is_kept: bool) -> bool:
    """Tell whether the port is free; then the sockets keep it from others."""
    if port in _given or port > HIGHEST:
        return False
    try:
        if sys.platform == "linux":
            claim = sockets.enter_context(socket.socket(socket.AF_UNIX))
            claim.bind(f"\0dledger-port-{port}")
        bound = sockets.enter_context(socket.socket())
        bound.bind((HOST, port))
    except OSError:
        return False
    if is_kept:
        # A server that sets this option, as all servers do, can now listen beside our socket.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    else:
        bound.close()
    return True
