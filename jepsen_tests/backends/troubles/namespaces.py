"""A run's own namespaces: no other process sees its mounts or uses its network.

A new mount namespace begins with a copy of every mount that its maker sees. Such a copy keeps the
file system of a disk alive. When the disk's power is cut and it is mounted again, the mount shows
the same file system, which gives EIO for ever. So a run mounts disks in a namespace that no other
run copies, and it enters other namespaces without making a copy of its mounts.
"""

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

INSIDE_VARIABLE: Final = "DLEDGER_CHAOS_NAMESPACES"
"""The process inside sets it to its own id and the kinds of its namespaces. A child has another id:
it is not inside, because it may be a run itself."""


def is_inside(*kinds: str) -> bool:
    """Say whether this process was started in such namespaces of its own."""
    pid, _, own = os.environ.get(INSIDE_VARIABLE, "").partition(" ")
    return pid == str(os.getpid()) and set(kinds) <= set(own.split())


@functools.cache
def why_not(*kinds: str) -> str:
    """Return why such namespaces cannot be made here; empty when they can.

    In a container, root may lack the right to make any.
    """
    if shutil.which("unshare") is None:
        return "namespaces of its own need unshare"
    tried = subprocess.run([*_unshare(kinds), "true"], capture_output=True, text=True, check=False)
    said = tried.stderr.strip()
    return f"namespaces of its own cannot be made here: {said}" if tried.returncode else ""


def _unshare(kinds: Sequence[str]) -> list[str]:
    private = ["--propagation", "private"] if "mount" in kinds else []
    return ["unshare", *(f"--{kind}" for kind in kinds), *private]


def become(kinds: Sequence[str], arguments: Sequence[str]) -> None:
    """Become a command within new namespaces; return if this process is inside already.

    `kinds` are as `unshare` names them. The process keeps its id. No other process sees its
    mounts, and it does not see later mounts of others.
    """
    if not kinds or is_inside(*kinds):
        return
    command = _unshare(kinds)
    inside = {INSIDE_VARIABLE: " ".join([str(os.getpid()), *kinds])}
    os.execvpe(command[0], [*command, *arguments], {**os.environ, **inside})
