"""The gRPC channels of this process to other members and to name servers, and what calls carry.

Not owned: the links of the Raft groups (`dledger.raft.links.peer_link`), which have connections of
their own.
"""

import asyncio
from typing import Final

import grpc.aio

from dledger_proto.limits import RECONNECT_BACKOFF_MAX_MS, RECONNECT_BACKOFF_MIN_MS
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import open_channel

GROUP_KEY: Final = "dledger-group"
"""Call metadata: the group of the process that the call is for."""
FORWARDED_KEY: Final = "dledger-forwarded"
"""Call metadata: a member forwarded this call; the next member does not forward it again."""
KEEPALIVE_MS: Final = 2_000


def client_options() -> list[tuple[str, int]]:
    """Return the options of a channel to another member or a name server (D10)."""
    return [
        ("grpc.use_local_subchannel_pool", 1),
        *raw.CHANNEL_OPTIONS,
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", RECONNECT_BACKOFF_MIN_MS),
        ("grpc.min_reconnect_backoff_ms", RECONNECT_BACKOFF_MIN_MS),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_BACKOFF_MAX_MS),
    ]


class Channels:
    """One channel per address, opened at first use and kept."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}

    def to(self, address: str) -> grpc.aio.Channel:
        """Return the channel to "host:port"."""
        channel = self._channels.get(address)
        if channel is None:
            channel = open_channel(address, options=client_options())
            self._channels[address] = channel
        return channel

    async def close(self) -> None:
        """Close all."""
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.close(None) for channel in channels.values()))
