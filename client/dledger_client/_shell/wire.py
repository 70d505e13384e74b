"""Channels to members and name servers, tries of unary calls, errors.

Owns: channel options (D10: back-off, keepalive, frame size), which connections stand, the metadata
that names a group. Not: whom to ask (`cluster.py`), streams (`producer.py`,
`consumer.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from dledger_client import _machine
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError, client_error, error_of
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import RECONNECT_BACKOFF_MAX_MS, RECONNECT_BACKOFF_MIN_MS
from dledger_proto.login.credentials import Credentials
from dledger_proto.login.tokens import Tokens
from dledger_proto.network.tls import TlsFolder
from dledger_proto.rpc.aio import ChannelTable
from dledger_proto.rpc.raw import CHANNEL_OPTIONS, Metadata, raw_unary
from dledger_proto.rpc.status import answer_of, from_rpc_error

_LOG = logging.getLogger("dledger_client")
GROUP_KEY: Final = "dledger-group"
CLOSE_TIMEOUT: Final = 0.05
"""Seconds to wait until closed channels report that they are closed."""

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


class Method(Generic[Request, Reply]):
    """A unary method: its name, the type of its reply, and what a repeat may do."""

    def __init__(
        self,
        service: str,
        request: type[Request],
        reply: type[Reply],
        *,
        write: bool,
        repeatable: bool = True,
        name: str = "",
    ) -> None:
        """`name`: of the method, where its request is not called so."""
        name = name or request.DESCRIPTOR.name.removesuffix("Request")
        self.path = f"/dledger.v1.{service}/{name}"
        self.reply = reply
        self.is_write = write
        self.is_repeatable = repeatable
        """A second call changes nothing more, so a call of unknown outcome may be repeated."""


def group_metadata(group: str) -> Metadata:
    """Return the metadata that says which group of a process is meant."""
    return ((GROUP_KEY, group),) if group else ()


def parse_addresses(addresses: str | Iterable[str]) -> list[str]:
    """Return "host:port" strings from a list, or from text with commas; ValueError if bad."""
    given = addresses.split(",") if isinstance(addresses, str) else list(addresses)
    found = list(dict.fromkeys(address.strip() for address in given if address.strip()))
    for address in found:
        host, separator, port = address.rpartition(":")
        if not separator or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(f'address {address!r}: must be "host:port"')
    if not found:
        raise ValueError("addresses: empty, give at least one name server or member")
    return found


def channel_options(config: ConnectionConfig) -> list[tuple[str, int]]:
    """Return the options of every channel of a client, asyncio or blocking."""
    return [
        *CHANNEL_OPTIONS,
        # Our own connections: another client's back-off must not be ours.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", RECONNECT_BACKOFF_MIN_MS),
        # The least time of one connection attempt.
        ("grpc.min_reconnect_backoff_ms", config.connect_timeout_ms),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_BACKOFF_MAX_MS),
        ("grpc.keepalive_time_ms", config.keepalive_ms),
        ("grpc.keepalive_timeout_ms", config.keepalive_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.enable_retries", 0),
    ]


def credentials_of(config: ConnectionConfig) -> Credentials:
    """Return who a client logs in as."""
    return Credentials(config.user, config.secret_file)


def tls_of(config: ConnectionConfig) -> TlsFolder | None:
    """Return the files by which a client proves who it is; TlsError when they cannot be used."""
    if not config.tls_folder:
        return None
    return TlsFolder(
        config.tls_folder, lambda why: _LOG.warning("changed TLS files are not used: %s", why)
    )


class Channels:
    """One channel per address, kept connected; all methods on the loop's thread."""

    def __init__(
        self, config: ConnectionConfig, on_ready: Callable[[str, bool], None] | None = None
    ) -> None:
        self._config = config
        self._on_ready = on_ready
        self._channels = ChannelTable(channel_options(config), tls_of(config))
        self._tokens = Tokens(credentials_of(config), _machine.random_bytes)
        self._watchers: dict[str, asyncio.Task[None]] = {}

    def to(self, address: str) -> grpc.aio.Channel:
        """Return the channel to an address."""
        return self._channels.to(address)

    async def connected(self, address: str) -> grpc.aio.Channel:
        """Return the channel to an address once its connection stands; TimeoutError."""
        channel = self.to(address)
        async with asyncio.timeout(self._config.connect_timeout_ms / 1_000):
            await channel.channel_ready()
        return channel

    async def ready(self, address: str, group: str) -> tuple[grpc.aio.Channel, Metadata]:
        """Return the channel to an address, connected and logged in, and what its calls carry.

        TimeoutError, grpc.aio.AioRpcError, DledgerError.
        """
        channel = await self.connected(address)
        return channel, await self.metadata(channel, group)

    async def metadata(self, channel: grpc.aio.Channel, group: str) -> Metadata:
        """Return what calls of a channel carry: the group of a process, a login."""
        token = await self._tokens.of(channel, self._config.connect_timeout_ms / 1_000)
        return (*group_metadata(group), *token)

    def failure(
        self,
        channel: grpc.aio.Channel,
        error: grpc.RpcError | DledgerError,
        metadata: Metadata,
        *,
        write: bool,
    ) -> ClientError:
        """Return what a call that broke means to the user; forget a login that ended."""
        broken = failure(error, write=write)
        if broken.code is Code.UNAUTHENTICATED and self._tokens.refused(channel, metadata):
            return error_of(Code.UNAVAILABLE, f"logging in again: {broken.detail}")
        return broken

    def keep_warm(self, addresses: Iterable[str]) -> None:
        """Keep connections to these addresses, and tell which of them stand."""
        for address in addresses:
            if address not in self._watchers:
                self._watchers[address] = asyncio.get_running_loop().create_task(
                    self._watch(address), name=f"dledger connection {address}"
                )

    async def _watch(self, address: str) -> None:
        stood = False
        while address in self._watchers:
            channel = self.to(address)
            state = channel.get_state(try_to_connect=True)
            stands = state is grpc.ChannelConnectivity.READY
            # A first attempt that is still under way says nothing yet.
            is_known = stands or stood or state is grpc.ChannelConnectivity.TRANSIENT_FAILURE
            stood = stands
            if is_known and self._on_ready is not None:
                self._on_ready(address, stands)
            await channel.wait_for_state_change(state)

    async def call(
        self,
        address: str,
        method: Method[Request, Reply],
        request: Request,
        *,
        group: str,
        timeout: float,
        running: set[grpc.aio.Call] | None = None,
    ) -> Reply:
        """Make one try of a call at one address; ClientError. `timeout` in seconds.

        While it is under way it is in `running`.
        """
        channel = self.to(address)
        began = asyncio.get_running_loop().time()
        try:
            metadata = await self._tokens.of(channel, timeout)
        except (grpc.aio.AioRpcError, DledgerError) as error:
            raise failure(error, write=False) from None
        except TimeoutError:
            raise error_of(Code.UNAVAILABLE, f"{address}: no login in time") from None
        left = timeout - (asyncio.get_running_loop().time() - began)
        call = raw_unary(channel, method.path)(
            request.SerializeToString(),
            timeout=max(left, 0.001),  # zero would mean no deadline
            metadata=(*group_metadata(group), *metadata),
        )
        running = set() if running is None else running
        running.add(call)
        try:
            return answer_of(method.reply, await call, write=method.is_write)
        except (grpc.aio.AioRpcError, DledgerError) as error:
            broken = self.failure(channel, error, metadata, write=method.is_write)
            broken.repeatable = method.is_repeatable
            raise broken from None
        finally:
            running.discard(call)

    async def close(self) -> None:
        """Close all channels."""
        watchers, self._watchers = list(self._watchers.values()), {}
        await self._channels.close()
        # A closed channel ends its watch. Cancelling instead would leave gRPC with an answer for
        # an event loop that may be gone by then.
        if watchers:
            _, late = await asyncio.wait(watchers, timeout=CLOSE_TIMEOUT)
            for watcher in late:
                watcher.cancel()


def failure(error: grpc.RpcError | DledgerError, *, write: bool) -> ClientError:
    """Return what a broken call means to the user."""
    if isinstance(error, DledgerError):
        return client_error(error)
    return client_error(from_rpc_error(error, write=write))
