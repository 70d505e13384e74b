"""What the options of channels and servers say, with gRPC's own defaults."""

from collections.abc import Sequence
from typing import Final

RECEIVE_MAX_DEFAULT: Final = 4 << 20
BACKOFF_DEFAULT_MS: Final = 1_000
BACKOFF_MAX_DEFAULT_MS: Final = 120_000
CONNECT_TIMEOUT_DEFAULT_MS: Final = 20_000
TIMES_MIN_MS: Final = 100
"""gRPC raises shorter times of the back-off to this."""
KEEPALIVE_TIMEOUT_DEFAULT_MS: Final = 20_000


class Options:
    """The options that the simulation honours. Times in seconds, sizes in bytes."""

    def __init__(self, options: Sequence[tuple[str, int]], *, by_kernel: bool = False) -> None:
        """`by_kernel`: the kernel sends and answers the pings of keepalive."""
        self.by_kernel = by_kernel
        said = {name.removeprefix("grpc."): value for name, value in options}
        self.send_max = _size(said.get("max_send_message_length", -1))
        self.receive_max = _size(said.get("max_receive_message_length", RECEIVE_MAX_DEFAULT))
        self.backoff_min = _backoff(said, "initial_reconnect_backoff_ms", BACKOFF_DEFAULT_MS)
        self.backoff_max = _backoff(said, "max_reconnect_backoff_ms", BACKOFF_MAX_DEFAULT_MS)
        self.connect_timeout = _backoff(
            said, "min_reconnect_backoff_ms", CONNECT_TIMEOUT_DEFAULT_MS
        )
        """An attempt to connect may take so long."""
        keepalive_ms = said.get("keepalive_time_ms", 0)
        self.keepalive = keepalive_ms / 1_000
        """Seconds from one ping to the next; 0: no pings."""
        self.keepalive_timeout = (
            said.get("keepalive_timeout_ms", KEEPALIVE_TIMEOUT_DEFAULT_MS) / 1_000
        )
        self.pings_without_calls = bool(said.get("keepalive_permit_without_calls", 0))


def _size(size: int) -> int:
    return size if size >= 0 else 1 << 62


def _backoff(said: dict[str, int], name: str, default: int) -> float:
    return max(TIMES_MIN_MS, said.get(name, default)) / 1_000
