"""Channels and servers of grpc.aio, whose wake-ups never block.

Owns: how every channel and server of grpc.aio is made. Does not own: their options (who makes one
knows them), methods and frames (`raw.py`).

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

import gc
import socket
import threading
from collections.abc import Sequence
from typing import Final

import grpc.aio

POLLER: Final = "PollerCompletionQueue"
"""The class of grpc.aio whose method is the poller's thread."""

Options = Sequence[tuple[str, int]]


def open_channel(address: str, options: Options = ()) -> grpc.aio.Channel:
    """Return a channel without encryption to "host:port"; it belongs to the running loop."""
    channel = grpc.aio.insecure_channel(address, options=options)
    unblock_wakeups()
    return channel


def make_server(options: Options = ()) -> grpc.aio.Server:
    """Return a server of the running loop, without ports and methods."""
    server = grpc.aio.server(options=options)  # pyright: ignore[reportUnknownMemberType]
    unblock_wakeups()
    return server


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
