"""The gRPC channels of this process to other members and to name servers, and what calls carry.

Not owned: the links of the Raft groups (`dledger.raft.links.peer_link`), which have connections of
their own.
"""

import asyncio
import contextlib
from typing import Final

import grpc.aio

from dledger_proto.limits import RECONNECT_BACKOFF_MAX_MS, RECONNECT_BACKOFF_MIN_MS
from dledger_proto.network.tls import Callee, TlsFolder
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import ChannelTable

GROUP_KEY: Final = "dledger-group"
"""Call metadata: the group of the process that the call is for."""
FORWARDED_KEY: Final = "dledger-forwarded"
"""Call metadata: a member passes this call on, LAST_HOP or FIRST_HOP of two."""
LAST_HOP: Final = "1"
"""The next member executes the call, or refuses it."""
FIRST_HOP: Final = "2"
"""To some member of the control group, which may pass the call on to its leader."""
USER_KEY: Final = "dledger-user"
"""Call metadata of a forwarded call: the user that made it. Members alone are believed."""
KEEPALIVE_MS: Final = 2_000
CONNECT_SECONDS: Final = 5.0
"""A channel without a connection is asked for its reason so often."""


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


async def connected(channel: grpc.aio.Channel) -> None:
    """Wait until a channel has a connection, but not for long: then a call says why it has none.

    A call that waited for a connection itself would never say, and would hold on to a channel of
    older TLS files.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CONNECT_SECONDS):
            await channel.channel_ready()


class Channels:
    """The channels of a member to the others, and to name servers.

    With TLS nothing of a call leaves before the certificate has named its callee.
    """

    def __init__(self, tls: TlsFolder | None = None) -> None:
        self._table = ChannelTable(client_options(), tls)

    def to(self, callee: Callee) -> grpc.aio.Channel:
        """Return the channel to a process."""
        return self._table.to(callee.address, callee.name)

    async def close(self) -> None:
        """Close all."""
        await self._table.close()
