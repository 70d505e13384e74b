"""A member's share of processor and memory, by a control group of its own (version 1 or 2)."""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from jepsen_tests.backends.surface import CannotLimit

ROOT: Final = Path("/sys/fs/cgroup")
PERIOD_US: Final = 100_000


def _is_v2() -> bool:
    return (ROOT / "cgroup.controllers").exists()


def why_not() -> str:
    """Return why members can't be limited here, or an empty string when they can."""
    if os.geteuid() != 0:
        return "control groups need root"
    if _is_v2():
        given = (ROOT / "cgroup.subtree_control").read_text().split()
        missing = {"cpu", "memory"} - set(given)
        return f"control groups lack {', '.join(sorted(missing))}" if missing else ""
    for controller in ("cpu", "memory"):
        if not os.access(ROOT / controller / "cgroup.procs", os.W_OK):
            return f"the control group {ROOT / controller} is missing or cannot be written"
    return ""


class MemberCgroups:
    """One group for each member, made when it is first needed. Implements `surface.Cgroups`."""

    def __init__(self, nodes: Sequence[str], pid_of: Callable[[str], int | None]) -> None:
        self._pid_of = pid_of
        self._names = {node: f"dledger-chaos-{os.getpid()}-{node}" for node in nodes}

    async def starve(self, node: str, cpu_percent: int, memory_bytes: int) -> None:
        pid = self._pid_of(node)
        if cpu_percent == 0 and memory_bytes == 0:
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):  # the process has ended
                    self._move(pid, "")
            return
        if pid is None:
            raise CannotLimit(f"{node} does not run")
        try:
            self._limit(node, pid, cpu_percent, memory_bytes)
        except OSError as error:  # the process has ended, or its memory is in use
            raise CannotLimit(f"{node}: {error}") from error

    def _limit(self, node: str, pid: int, cpu_percent: int, memory_bytes: int) -> None:
        for folder in self._folders(self._names[node]):
            folder.mkdir(exist_ok=True)
        quota = cpu_percent * PERIOD_US // 100 if cpu_percent else -1
        name = self._names[node]
        if _is_v2():
            (ROOT / name / "cpu.max").write_text(f"{quota if quota > 0 else 'max'} {PERIOD_US}")
            (ROOT / name / "memory.high").write_text(str(memory_bytes or "max"))
        else:
            (ROOT / "cpu" / name / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (ROOT / "cpu" / name / "cpu.cfs_quota_us").write_text(str(quota))
            limit = memory_bytes or -1
            (ROOT / "memory" / name / "memory.limit_in_bytes").write_text(str(limit))
        self._move(pid, name)

    async def remove(self) -> None:
        """Remove the groups; the members have ended."""
        for name in self._names.values():
            for folder in self._folders(name):
                if folder.exists():
                    folder.rmdir()

    def _move(self, pid: int, name: str) -> None:
        for folder in self._folders(name):
            (folder / "cgroup.procs").write_text(str(pid))

    def _folders(self, name: str) -> list[Path]:
        bases = [ROOT] if _is_v2() else [ROOT / "cpu", ROOT / "memory"]
        return [base / name if name else base for base in bases]
