"""Channels and servers of grpc.aio, whose wake-ups never block.

Owns: how every channel and server of grpc.aio is made, with or without TLS. Does not own: their
options (who makes one knows them), methods and frames (`raw.py`).

All of grpc.aio in a process shares one poller: a thread that takes finished operations from gRPC's
core and writes one byte to a socket pair for each, to wake the event loop. The loop reads ONE byte
per turn, though it takes up all operations that wait. So a busy loop with two finished operations
per turn leaves one byte behind at each turn. After some 280 turns the socket is full, and the
poller blocks in its write. Linux wakes a blocked writer only when three quarters of the socket are
free again: 210 turns later. Until then no stream moves: a producer at full speed stood still for up
to a second every few seconds.

The byte says only "look at the queue". When the socket is full, hundreds of earlier bytes will wake
the loop. So this module makes the socket non-blocking, and the poller drops the byte.
"""

import asyncio
import gc
import socket
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

import grpc.aio

from dledger_proto.network.open_files import connections_max
from dledger_proto.network.tls import Keys, TlsFolder, proof_host

HANDSHAKE_MS_MAX: Final = 10_000
"""A connection that has not said what TLS and HTTP/2 begin with after so long is closed."""
OLDER_CHANNELS_MAX: Final = 64
"""Of one address and name, opened with earlier TLS files: after so many the oldest is closed."""
POLLER: Final = "PollerCompletionQueue"
"""The class of grpc.aio whose method is the poller's thread."""

Options = Sequence[tuple[str, int | str]]


def open_channel(
    address: str, options: Options = (), keys: Keys | None = None, name: str = ""
) -> grpc.aio.Channel:
    """Return a channel to "host:port", by TLS with `keys`; it belongs to the running loop.

    `name`: what the certificate there must say; empty: the host of the address.
    """
    if keys is None:
        channel = grpc.aio.insecure_channel(address, options=options)
    else:
        if name:
            options = [*options, ("grpc.ssl_target_name_override", proof_host(name))]
        channel = grpc.aio.secure_channel(address, keys.for_channel(), options=options)
    unblock_wakeups()
    return channel


class ChannelTable:
    """One channel for each address and name, opened at first use and kept, of the running loop.

    After a change of the TLS files the next user of an address gets a new channel. Streams that
    run go on with the older one: grpc.aio would cancel whoever reads them if it was closed. An
    older channel that nobody uses has no connection after half an hour (gRPC's idle timeout).
    """

    def __init__(self, options: Options, tls: TlsFolder | None) -> None:
        self._options = options
        self._tls = tls
        self._channels: dict[tuple[str, str], tuple[int, grpc.aio.Channel]] = {}
        """With the version of the files that each was opened with."""
        self._older: dict[tuple[str, str], deque[grpc.aio.Channel]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def to(self, address: str, name: str = "") -> grpc.aio.Channel:
        """Return the channel to "host:port"; `name`: see `open_channel`."""
        place = address, name
        keys = None if self._tls is None else self._tls.current()
        version = 0 if keys is None else keys.version
        known = self._channels.get(place)
        if known is not None and known[0] == version:
            return known[1]
        if known is not None:
            self._retire(place, known[1])
        channel = open_channel(address, self._options, keys, name)
        self._channels[place] = version, channel
        return channel

    def _retire(self, place: tuple[str, str], channel: grpc.aio.Channel) -> None:
        older = self._older.setdefault(place, deque())
        older.append(channel)
        if len(older) > OLDER_CHANNELS_MAX:
            task = asyncio.get_running_loop().create_task(older.popleft().close(None))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all."""
        channels = [channel for _, channel in self._channels.values()]
        channels += [channel for older in self._older.values() for channel in older]
        self._channels, self._older = {}, {}
        await asyncio.gather(*(channel.close(None) for channel in channels), *self._closing)


def make_server(options: Options = ()) -> grpc.aio.Server:
    """Return a server of the running loop, without ports and methods."""
    options = [
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS_MAX),
        ("grpc.max_allowed_incoming_connections", connections_max()),
        *options,
    ]
    server = grpc.aio.server(options=options)  # pyright: ignore[reportUnknownMemberType]
    unblock_wakeups()
    return server


def take_port(server: grpc.aio.Server, address: str, tls: TlsFolder | None) -> int:
    """Let a server listen on "host:port", for TLS alone if there is a folder; return the port.

    RuntimeError, or 0, when it cannot be had.
    """
    if tls is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, tls.server_credentials())


def unblock_wakeups() -> None:
    """Let no poller of this process block in a wake-up. Call it once grpc.aio is in use.

    gRPC does not show its sockets, so this function finds them as the garbage collector would.
    In a version of gRPC without such a poller it does nothing.
    """
    for wakeups in poller_sockets():
        wakeups.setblocking(False)


def poller_sockets() -> list[socket.socket]:
    """Return both ends of the socket pairs by which pollers wake event loops."""
    pollers = [
        owner
        for thread in threading.enumerate()
        if type(owner := getattr(getattr(thread, "_target", None), "__self__", None)).__name__
        == POLLER
    ]
    return [each for each in gc.get_referents(*pollers) if isinstance(each, socket.socket)]
