"""An attempt to connect to an address.

A server that listens accepts after a round trip. A host whose kernel runs refuses where nobody
listens. Otherwise nothing answers, and the kernel knocks again until the attempt's time is over.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.sim.network.options import Options
from tests.sim.network.wire import Socket, SocketOwner
from tests.sim.process.loop import ProcessLoop

if TYPE_CHECKING:
    from tests.sim.network.network import Network

KNOCK_AGAIN_MIN: Final = 0.2
KNOCK_AGAIN_MAX: Final = 1.0
LOCAL: Final = frozenset({"127.0.0.1", "localhost", "0.0.0.0", "[::1]"})

Answered = Callable[[Socket | None, str], None]


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port"."""
    host, _, port = address.rpartition(":")
    return host, int(port)


class Dial:
    """One attempt. `answered(socket, reason)` is called once on the loop, unless cancelled."""

    def __init__(
        self,
        network: "Network",
        loop: ProcessLoop,
        address: str,
        owner: SocketOwner,
        options: Options,
        timeout: float,
        answered: Answered,
    ) -> None:
        self._network = network
        self._loop = loop
        host, self._port = parse_address(address)
        self._host = loop.host if host in LOCAL else host
        self._address = address
        self._owner = owner
        self._options = options
        self._deadline = network.scheduler.now + timeout
        self._answered = answered
        self._is_over = False
        self._there = network.path(loop.host, self._host)
        self._back = network.path(self._host, loop.host)
        self._knock()

    def cancel(self) -> None:
        """Give the attempt up, without a call of `answered`."""
        self._is_over = True

    def _knock(self) -> None:
        if self._is_over or self._loop.is_ended:
            return
        round_trip = self._there.draw_delay() + self._back.draw_delay()
        self._network.scheduler.after(round_trip, self._arrived)

    def _arrived(self) -> None:
        if self._is_over or self._loop.is_ended:
            return
        network = self._network
        host = network.host(self._host)
        server = host.listeners.get(self._port)
        if not (host.is_up and self._there.is_open and self._back.is_open):
            self._unanswered()
        elif server is None:
            self._end(None, f"Failed to connect to remote host: {self._address}: "
                            "Connection refused")  # fmt: skip
        elif not server.answers:
            self._unanswered()
        else:
            self._end(network.connect(self._loop, self._owner, self._options, server), "")

    def _unanswered(self) -> None:
        scheduler = self._network.scheduler
        again = scheduler.now + self._network.random.uniform(KNOCK_AGAIN_MIN, KNOCK_AGAIN_MAX)
        if again < self._deadline:
            scheduler.at(again, self._knock)
        else:
            scheduler.at(self._deadline, self._timed_out)

    def _timed_out(self) -> None:
        if not self._is_over:
            self._end(None, f"Failed to connect to remote host: {self._address}: "
                            "Timeout occurred")  # fmt: skip

    def _end(self, socket: Socket | None, reason: str) -> None:
        self._is_over = True
        outcome = "established" if socket is not None else reason.rpartition(": ")[2]
        self._network.trace(f"dial {self._loop.host} {self._address} {outcome}")
        self._loop.call_soon(self._answered, socket, reason)
