"""Processes of one peer's nodes: start, kill, restart, end.

Owns nothing but processes that it has started. It ends each by its process group, which holds the
node's own helpers, too. Not: what a node is told (each peer's module).
"""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.setup.cluster import NotReady

READY_SECONDS_MAX = 120.0
STOP_SECONDS = 10.0
"""How long nodes may take to end after SIGTERM before they are killed."""
LOOK_SECONDS = 0.1


@dataclass(slots=True)
class Nodes:
    """Nodes by name, with the command of each."""

    folder: Path
    """Where each node's output goes, in `<node>.log`."""
    commands: Mapping[str, Sequence[str]]
    environment: Mapping[str, str] | None = None
    """None: that of this process."""
    processes: dict[str, subprocess.Popen[bytes]] = field(
        default_factory=dict[str, subprocess.Popen[bytes]]
    )

    def start_all(self) -> None:
        """Start every node."""
        for name in self.commands:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a node that is not running. It gets SIGTERM when this process ends."""
        assert not self.is_running(name), f"{name} is running"
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*dying_with_owner(), *self.commands[name]],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                process_group=0,  # not a session: see docs/performance/profiles.md
                env=self.environment,
            )

    def is_running(self, name: str) -> bool:
        """Tell whether a node was started and has not ended."""
        process = self.processes.get(name)
        return process is not None and process.poll() is None

    def kill(self, name: str) -> None:
        """Kill a node (SIGKILL) and wait for its end."""
        process = self.processes[name]
        _signal(process, signal.SIGKILL)
        process.wait(STOP_SECONDS)

    def stop(self) -> None:
        """End every node: SIGTERM, and SIGKILL for those that take too long."""
        running = [each for each in self.processes.values() if each.poll() is None]
        for process in running:
            _signal(process, signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        for process in running:
            try:
                process.wait(max(0.01, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait(STOP_SECONDS)
        self.processes.clear()

    def check_alive(self) -> None:
        """Raise NotReady when a node has ended by itself."""
        for name, process in self.processes.items():
            code = process.poll()
            if code is not None and code != -signal.SIGKILL:
                lines = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
                said = lines[-1] if lines else "nothing"
                raise NotReady(f"{name} ended with exit code {code}; its log ends with: {said}")

    async def until(
        self,
        condition: Callable[[], Awaitable[bool]],
        what: str,
        seconds_max: float = READY_SECONDS_MAX,
    ) -> None:
        """Wait until something holds; NotReady when it does not in time, or a node has ended."""
        end = time.monotonic() + seconds_max
        while not await condition():
            self.check_alive()
            if time.monotonic() > end:
                raise NotReady(f"{what} did not come within {seconds_max:g} s; see {self.folder}")
            await asyncio.sleep(LOOK_SECONDS)


class OnNodes:
    """What every peer does with its nodes."""

    def __init__(self) -> None:
        self._nodes: Nodes | None = None

    @property
    def nodes(self) -> Nodes:
        """The nodes, once they are started."""
        assert self._nodes is not None, "started"
        return self._nodes

    def begin(self, nodes: Nodes) -> None:
        """Start all nodes."""
        self._nodes = nodes
        nodes.start_all()

    async def stop(self) -> None:
        """End all nodes."""
        if self._nodes is not None:
            self._nodes.stop()

    def kill(self, node: str) -> None:
        """Kill a node (SIGKILL)."""
        self.nodes.kill(node)

    def restart(self, node: str) -> None:
        """Start a killed node on its data."""
        self.nodes.start(node)


def dying_with_owner() -> list[str]:
    """Return what stands before a command so that it ends with this process, where that exists."""
    tool = shutil.which("setpriv")
    return [tool, "--pdeathsig", "TERM", "--"] if tool else []


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the process group that was started with the process."""
    if process.poll() is None:
        os.killpg(process.pid, number)
