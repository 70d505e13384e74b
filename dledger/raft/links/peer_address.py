"""Where a peer is: the hosts that its name stands for, and in which order they are tried.

A name may stand for several hosts, of which some are silent. A dial has no time for a second host
after a silent one, so the next dial begins with another. After a link the same host is tried first,
without asking for the name: a look-up may take longer than a redial may (D17).
"""

import asyncio
import socket

from dledger_proto.network.addresses import split_address


class PeerAddress:
    """The address of a peer. Invariant: `_tried` are hosts that the name stood for last."""

    def __init__(self, address: str) -> None:
        host, self.port = split_address(address)
        self.name = host.strip("[]")
        self._tried: set[str] = set()
        """Hosts tried since one was last reached, or since all had been tried."""
        self._reached: str | None = None
        """The host of the newest link."""

    async def hosts(self, *, again: bool) -> list[str]:
        """Return the hosts to try, in order; `again`: only that of the newest link.

        OSError when the name is not known.
        """
        if again and self._reached is not None:
            return [self._reached]
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self.name, self.port, type=socket.SOCK_STREAM)
        hosts = list(dict.fromkeys(_host(place) for *_, place in found))
        self._tried.intersection_update(hosts)
        if len(self._tried) == len(hosts):
            self._tried.clear()
        return sorted(hosts, key=lambda host: (host in self._tried, host != self._reached))

    def tries(self, host: str) -> None:
        """Note that a host is dialled."""
        self._tried.add(host)

    def reached(self, host: str) -> None:
        """Note that the peer accepted there."""
        self._reached = host
        self._tried.clear()


def _host(place: tuple[object, ...]) -> str:
    """Return the host of a socket's address. An address of one IPv6 link has a scope."""
    host, _, *more = place
    scope = more[1] if len(more) > 1 else 0
    return f"{host}%{scope}" if scope else str(host)
