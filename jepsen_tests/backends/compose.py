"""The docker compose cluster of deploy/: the image that people run, on a real docker engine.

Uses the engine that answers, or starts one of its own for the run (`docker.engine`). Members are
ordinary containers: faults that reach into their process or their disk are impossible here. With
root, and the engine on this machine, the containers' network namespaces can drop packets.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from jepsen_tests.backends.surface import (
    Backend,
    CannotLimit,
    CannotRun,
    Processes,
    WantedCluster,
)
from jepsen_tests.backends.troubles import packet_rules
from jepsen_tests.backends.troubles.packet_rules import PacketRules
from jepsen_tests.docker.engine import DockerEngine, NoEngine, base_image, engine
from jepsen_tests.docker.stack import CommandFailed, Stack
from jepsen_tests.errors import BadRequest
from jepsen_tests.processes.threads import Threads

FILE: Final = "compose"
NODES: Final = ("n1", "n2", "n3")
GROUP: Final = "g1"
ORDINARY: Final = "the members are ordinary containers of the image"


class Containers(Processes):
    """The members' containers. Implements `surface.Processes` and `surface.Cgroups`."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._running: set[str] = set()
        self._pids: dict[str, int] = {}
        self._limits: dict[str, tuple[str, str]] = {}
        self._addresses: dict[str, str] = {}
        self._restarts: dict[str, int] = {}
        """By container, how often the engine itself restarted it since we started it."""
        self._counting = asyncio.Lock()
        self._unsaid: dict[str, list[str]] = {}
        """Restarts that `restarted` has not returned yet."""
        self.rules = PacketRules(self._addresses, self._inside)

    def pid(self, node: str) -> int | None:
        """Return the process id of a member, if its process runs on this machine."""
        return self._pids.get(node)

    def _inside(self, node: str) -> tuple[str, ...]:
        pid = self._pids.get(node)
        return ("nsenter", "--target", str(pid), "--net") if pid else ()

    async def look(self) -> None:
        """Learn process and address of each container: a restart changes the process."""
        for node, found in (await self._inspect()).items():
            state, host = found["State"], found["HostConfig"]
            self._pids.pop(node, None)
            self._running.discard(node)
            self._limits.setdefault(node, (str(host["NanoCpus"] / 1e9), str(host["Memory"])))
            if state["Running"]:
                self._running.add(node)
                address = found["NetworkSettings"]["Networks"][self._stack.network]["IPAddress"]
                self._addresses[node] = address
                # With an engine on another machine the number would name another process.
                if _is_in_container(state["Pid"], found["Id"]):
                    self._pids[node] = state["Pid"]

    async def _inspect(self) -> dict[str, dict[str, Any]]:
        names = [self._stack.container(node) for node in self._stack.members]
        found = json.loads(await self._stack.docker("inspect", *names))
        return dict(zip(self._stack.members, found, strict=True))

    async def restarted(self) -> dict[str, list[str]]:
        """See `surface.Processes`: the engine counts only restarts that it did by itself."""
        await self._count()
        again, self._unsaid = self._unsaid, {}
        if again:
            await self.look()
        return again

    async def _count(self) -> None:
        async with self._counting:
            for node, how in newly_restarted(self._restarts, await self._inspect()).items():
                self._unsaid.setdefault(node, []).extend(how)

    @property
    def can_be_entered(self) -> bool:
        """Whether the namespaces of all containers are on this machine."""
        return len(self._pids) == len(self._stack.members)

    # surface.Processes

    async def kill(self, node: str) -> None:
        if node in self._running:
            await self._stack.each("kill", node)
        await self.look()

    async def stop(self, node: str) -> None:
        await self._stack.each("stop", node)
        await self.look()

    async def start(self, node: str) -> None:
        await self._count()  # a start resets the count of the engine
        async with self._counting:
            await self._stack.each("start", node)
            self._restarts[node] = 0
        await self.look()
        if self.can_be_entered:
            await self.rules.apply(self._running)

    async def pause(self, node: str) -> None:
        await self._stack.each("pause", node)

    async def resume(self, node: str) -> None:
        """See `surface.Processes`. A member may run already: it was killed and started meanwhile.

        The engine calls it an error to resume a container that runs.
        """
        if (await self._inspect())[node]["State"]["Paused"]:
            await self._stack.each("unpause", node)

    def is_running(self, node: str) -> bool:
        """See `surface.Processes`: the engine starts a member again that ended by itself."""
        return node in self._running

    def exit_code(self, node: str) -> int | None:
        """See `surface.Processes`: the engine restarts a member that we did not end."""
        return None if node in self._running else 0

    # surface.Cgroups

    async def starve(self, node: str, cpu_percent: int, memory_bytes: int) -> None:
        """See `surface.Cgroups`. A container frees memory only when it ends: no limit is set."""
        del memory_bytes
        if cpu_percent and node not in self._running:
            raise CannotLimit(f"{node} does not run")
        cpus, _ = self._limits[node]
        if cpu_percent:
            cpus = str(cpu_percent / 100)
        await self._stack.docker("update", "--cpus", cpus, self._stack.container(node))


def newly_restarted(
    known: dict[str, int], found: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Return by member each restart since `known`; bring `known` up to date.

    The engine does not keep how a member ended. `found` is what `docker inspect` says of each. A
    start by command resets the engine's count, so the caller sets `known` of that member to 0 then.
    """
    again: dict[str, list[str]] = {}
    for node, each in found.items():
        count = int(each["RestartCount"])
        times = count - known.get(node, 0)
        if times > 0:
            again[node] = ["restarted by the engine"] * times
        known[node] = count
    return again


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")


def _is_in_container(pid: int, container: str) -> bool:
    try:
        return container in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


class ComposeBackend(Backend):
    """The docker compose cluster of deploy/. Needs a docker engine, or root to start one."""

    name = "compose"
    group = GROUP

    def __init__(self, wanted: WantedCluster) -> None:
        if wanted.nodes != len(NODES):
            raise BadRequest(
                f"--nodes {wanted.nodes}: deploy/{FILE}.yaml has {len(NODES)} members; "
                "take another backend for more"
            )
        self.nodes = NODES
        self._wanted = wanted
        self._exits = ExitStack()
        self._entering = Threads()
        self._stack: Stack | None = None
        self._containers: Containers | None = None
        self._why_no_rules = packet_rules.why_not("nsenter")
        self.missing = dict.fromkeys(("folders", "disks", "syncs", "clocks"), ORDINARY)
        self.never = tuple(self.missing)
        if self._why_no_rules:
            self.missing["network"] = self._why_no_rules

    @property
    def _started(self) -> Stack:
        assert self._stack is not None, "not started"
        return self._stack

    @property
    def bootstrap(self) -> str:
        return self._started.name_servers

    def address(self, node: str) -> str:
        return self._started.address(node)

    def pid(self, node: str) -> int | None:
        return None if self._containers is None else self._containers.pid(node)

    def describe(self) -> str:
        return f"containers of deploy/{FILE}.yaml: {', '.join(self.nodes)}"

    async def start(self) -> None:
        try:
            used, base = await self._entering.do(self._enter)
            image = f"dledger-chaos:{os.getpid()}"
            used.images.append(image)
            self._stack = Stack(used, FILE, image, base, NODES, self._settings_file())
            _say("building the image")
            await self._stack.build()
            await self._stack.up()
            await self._take_hold()
        except (NoEngine, CommandFailed) as error:
            raise CannotRun(str(error)) from error

    def _enter(self) -> tuple[DockerEngine, str]:
        used = self._exits.enter_context(engine(_say))
        return used, base_image(used)

    def _settings_file(self) -> Path:
        """Write the settings that the workload wants, as an addition to the compose file."""
        environment = {
            f"DLEDGER_{key.replace('.', '_').upper()}": json.dumps(value)
            for key, value in self._wanted.settings.items()
        }
        path = self._wanted.folder / "settings.yaml"
        services = {node: {"environment": environment} for node in NODES}
        path.write_text(json.dumps({"services": services}))
        return path

    async def _take_hold(self) -> None:
        containers = Containers(self._started)
        await containers.look()
        self.processes = self.cgroups = self._containers = containers
        if not self._why_no_rules:
            if containers.can_be_entered:
                self.network = containers.rules
            else:
                self.missing["network"] = "the engine is not on this machine"

    async def stop(self) -> None:
        try:
            if self._stack is not None:
                log = self._wanted.folder / "containers.log"
                log.write_text(await self._stack.compose("logs", "--no-color"))
        finally:
            await self.abort()

    async def abort(self) -> None:
        """See `surface.Backend`. A caller that was broken off may call it again."""
        try:
            if self._stack is not None:
                await self._stack.down()
                self._stack = None
        finally:
            await self._entering.over()
            await asyncio.to_thread(self._exits.close)
