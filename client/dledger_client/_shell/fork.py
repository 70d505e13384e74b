"""What a fork leaves of clients: open ones do not survive, new ones work if gRPC was at rest.

Owns: bringing gRPC to rest before a fork, where no client is open, and whether this process is the
child of a fork at which gRPC was running. Not: what the child's own background loop is
(`runner.py`).

A child has none of gRPC's threads, and gRPC's state does not know that. A call in the child would
wait for ever, and gRPC's own fork handlers (which `dledger_proto` turns off) end children by
SIGSEGV. But when the last channel of a process is freed, gRPC ends all its threads. It starts again
with the next channel, in a child as well. So before each fork, when every client is closed, this
module frees what the garbage collector still holds of their channels, and waits until gRPC's
threads have ended. Servers that fork their workers thus close all clients in the parent and make
new ones in the workers. If a client is open in the parent, the child's first call raises
ClientClosed at once.
"""

import gc
import os
import threading
import time
import weakref
from pathlib import Path
from typing import Final

from dledger_client.errors import ClientClosed
from dledger_proto.errors import Code

REST_SECONDS: Final = 2.0
"""How long a fork waits for the end of gRPC's threads; milliseconds are usual."""
_LOOK_SECONDS: Final = 0.002
_GRPC_THREADS: Final = frozenset({"event_engine", "grpc_global_tim", "lifeguard"})
"""Their names in /proc, of 15 bytes at most."""
_TASKS: Final = Path("/proc/self/task")


class _Process:
    """What is known of this process."""

    is_used = False
    """gRPC was started by a client since it was last known to be at rest."""
    is_cut_off = False
    cuts_off = False
    """The fork under way makes a child that cannot have a client."""


_open: "weakref.WeakSet[object]" = weakref.WeakSet()
"""Clients that are started and not closed."""


def opened(client: object) -> None:
    """Say that a client is being started; ClientClosed in a child that cannot have one."""
    check_fork()
    _Process.is_used = True
    _open.add(client)


def closed(client: object) -> None:
    """Say that a client has closed its channels."""
    _open.discard(client)


def check_fork() -> None:
    """Raise ClientClosed in the child of a fork at which a client was open."""
    if _Process.is_cut_off:
        raise ClientClosed(
            Code.CLOSED,
            f"process {os.getpid()} is the child of a fork at which its parent had a client open,"
            " or gRPC was still running; gRPC does not survive a fork. Close all clients of the"
            " parent before it forks, then make others in the child, or start the child by"
            ' "spawn" or "forkserver"',
        )


def _is_running() -> bool:
    """Return whether gRPC has threads; where nobody can tell, whether it was used."""
    if not _TASKS.is_dir():
        return _Process.is_used
    for task in _TASKS.iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except OSError:  # it ended meanwhile
            continue
        if name in _GRPC_THREADS:
            return True
    return False


def _before_fork() -> None:
    if _Process.is_used and not _open:
        gc.collect()
        end, pause = time.monotonic() + REST_SECONDS, threading.Event()
        while _is_running() and time.monotonic() < end:
            pause.wait(_LOOK_SECONDS)
        # Whoever else keeps gRPC running is not waited for again, until the next client.
        _Process.is_used = False
    _Process.cuts_off = bool(_open) or _is_running()


def _after_fork() -> None:
    _Process.is_cut_off = _Process.is_cut_off or _Process.cuts_off


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
