"""A fork leaves gRPC's threads, and ours, behind in the parent: the child is told so, at once.

Owns: whether this process is such a child. Without this its calls would wait for threads that are
not there, the ones without a budget for good.

gRPC's own fork handlers, on by default, may end such a child by SIGSEGV before it gets so far (seen
in 3 of 14 children); with GRPC_ENABLE_FORK_SUPPORT=0 in the environment none of 36 was ended.
"""

import os

from dledger_client.errors import ClientClosed
from dledger_proto.errors import Code


class _Process:
    """What is known of this process."""

    is_used = False
    """A client was started here, or in the parent before the fork."""
    is_cut_off = False


def note_use() -> None:
    """Say that a client is being started; ClientClosed in a child that cannot have one."""
    check_fork()
    _Process.is_used = True


def check_fork() -> None:
    """Raise ClientClosed in a child of a process that had used a client."""
    if _Process.is_cut_off:
        raise ClientClosed(
            Code.CLOSED,
            f"process {os.getpid()} was forked from one that had used a client, and gRPC does not"
            ' survive a fork: start it by "spawn" or "forkserver", or make the first client in it',
        )


def _after_fork() -> None:
    _Process.is_cut_off = _Process.is_used


os.register_at_fork(after_in_child=_after_fork)
