"""A run's own namespaces: nobody else sees what it mounts, or has its network.

A new mount namespace begins with a copy of every mount that its maker sees. Such a copy keeps the
file system of a disk alive: when the disk's power is cut and it is mounted again, that is the same
file system, which gives EIO for ever. So whoever mounts disks does it where nobody else, such as
another run, makes copies from; and enters other namespaces without making one for its mounts.
"""

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

INSIDE_VARIABLE: Final = "DLEDGER_CHAOS_NAMESPACES"
"""Set in the process that runs inside: its own id, and what is its own. Children are not inside by
this: they may be runs themselves."""


def is_inside(*kinds: str) -> bool:
    """Say whether this process was started in such namespaces of its own."""
    pid, _, own = os.environ.get(INSIDE_VARIABLE, "").partition(" ")
    return pid == str(os.getpid()) and set(kinds) <= set(own.split())


@functools.cache
def why_not(*kinds: str) -> str:
    """Return why there can be no such namespaces here, or an empty string when there can.

    Root may lack the right to make any, in a container.
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
    """Become a command within new namespaces; return only when none is wanted that is not there.

    `kinds` as `unshare` names them. The process keeps its id; its mounts stay its own, and others'
    later ones do not appear.
    """
    if not kinds or is_inside(*kinds):
        return
    command = _unshare(kinds)
    inside = {INSIDE_VARIABLE: " ".join([str(os.getpid()), *kinds])}
    os.execvpe(command[0], [*command, *arguments], {**os.environ, **inside})
