"""Members as processes of this machine, with a proxy on every link. Needs no root.

Owns folders, ports, configuration files and processes of a run:

    folder/<node>/config.toml     the member's configuration: proxies stand for its peers, and for
                                  the member itself towards its clients
    folder/<node>/control.json    what its surroundings do to it (`processes/launch.py`)
    folder/<node>/data/           its log and state
    folder/<process>.log          what it printed

With root and loop devices each member's data have a disk of their own (`<node>.img`, kept), and
with control groups a member can be limited.
"""

import asyncio
import copy
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from dledger_proto.network.addresses import split_address
from dledger_proto.network.ports import HOST, free_ports
from jepsen_tests.backends.security import CLUSTER, Security
from jepsen_tests.backends.surface import (
    CLIENTS,
    Backend,
    CannotRepair,
    CannotRun,
    Processes,
    WantedCluster,
)
from jepsen_tests.backends.troubles import cgroup, loop_disk, namespaces
from jepsen_tests.backends.troubles.cgroup import MemberCgroups
from jepsen_tests.backends.troubles.links import LinkProxies
from jepsen_tests.backends.troubles.loop_disk import LoopDisks
from jepsen_tests.processes.child import Ended, tool
from jepsen_tests.processes.launch import Control

GROUP: Final = "group-1"
"""The control group, and mostly the only one."""
NAME_SERVERS: Final = ("ns1", "ns2")
STOP_SECONDS: Final = 15.0
REPAIR_SECONDS: Final = 120.0
ASIDE: Final = ".damaged-"
"""`dledger repair` puts it between the name of a folder that it sets aside and a number."""
ROOT: Final = Path(__file__).parents[2]


class LocalMembers(Processes):
    """Processes, folders and surroundings of the members. Implements the handles of `surface`."""

    def __init__(
        self,
        folder: Path,
        groups: Mapping[str, str],
        mutant: str,
        within: Callable[[str], list[str]],
    ) -> None:
        """`groups`: of each member its broker group."""
        nodes = list(groups)
        self._groups = groups
        self._folder = folder
        self._mutant = mutant
        self._within = within
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._controls = dict.fromkeys(nodes, Control())
        self._is_over = False
        self._lives: Counter[str] = Counter()
        """How often each process was started."""
        self._known: set[str] = set()
        """Processes whose present life we ended, or whose end is noted."""
        self._died: dict[str, list[str]] = {}
        """By member, the ends that were not our doing and that `died` has not returned yet."""

    # surface.Processes

    async def kill(self, node: str) -> None:
        process = self._started[node]
        was_known = self._end_of(node)
        process.kill()
        await self._ended(node)
        if not was_known and process.returncode != -signal.SIGKILL:  # it ended before our signal
            self._known.discard(node)

    async def stop(self, node: str) -> None:
        process = self._started[node]
        self._end_of(node)
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._ended(node)
        except TimeoutError:
            await self.kill(node)

    async def _ended(self, node: str) -> None:
        await asyncio.to_thread(self._started[node].wait)

    def died(self) -> dict[str, list[str]]:
        for node in self._controls:
            self._look(node)
        told, self._died = self._died, {}
        return told

    def _end_of(self, node: str) -> bool:
        """Note that we end a process now, if it runs; return whether its end was known before."""
        self._look(node)
        was_known = node in self._known
        self._known.add(node)
        return was_known

    def _look(self, node: str) -> None:
        """Note the end of a process that we did not end."""
        process = self._started.get(node)
        if process is None or process.poll() is None or node in self._known:
            return
        self._known.add(node)
        how = f"exit {process.returncode}, life {self._lives[node]}"
        self._died.setdefault(node, []).append(how)

    async def start(self, node: str) -> None:
        control = self._folder / node / "control.json"
        # A new process has a sound disk again; its clock stays as wrong as it is.
        self._control(node, replace(self._controls[node], sync_seconds=0.0, sync_fails=False))
        options = ["--control", str(control)]
        if self._mutant:
            options += ["--mutant", self._mutant]
        config = self._folder / node / "config.toml"
        self.spawn(node, [*options, "dledger_broker.cli", "broker", "--config", str(config)])

    def spawn(self, name: str, arguments: Sequence[str]) -> None:
        """Start any process of the cluster; `arguments` as `launch` takes them."""
        assert not self.is_running(name), f"{name} is running"
        if self._is_over:  # the run ended while a fault was healed
            raise CannotRun(f"{name} is not started: the run is over")
        self._look(name)
        self._known.discard(name)
        self._lives[name] += 1
        environment = {key: each for key, each in os.environ.items() if key[:8] != "DLEDGER_"}
        with (self._folder / f"{name}.log").open("ab") as log:
            self._started[name] = subprocess.Popen(
                [
                    *self._within(name),
                    *(sys.executable, "-m", "jepsen_tests.processes.launch", str(os.getpid())),
                    *arguments,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                # The files hold all settings; a variable of the user's shell must not change them.
                env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
                process_group=0,  # Ctrl-C reaches only the harness, which ends all in order
            )

    async def pause(self, node: str) -> None:
        self._started[node].send_signal(signal.SIGSTOP)
        while not self._stands_still(node):  # noqa: ASYNC110 - the kernel sends no event
            await asyncio.sleep(0.001)

    def _stands_still(self, node: str) -> bool:
        if not self.is_running(node):
            return True
        # The state follows the name in brackets, which may hold anything. T: stopped.
        state = Path(f"/proc/{self._started[node].pid}/stat").read_text().rpartition(")")[2]
        return state.split()[0] == "T"

    async def resume(self, node: str) -> None:
        self._started[node].send_signal(signal.SIGCONT)

    def is_running(self, node: str) -> bool:
        process = self._started.get(node)
        return process is not None and process.poll() is None

    def exit_code(self, node: str) -> int | None:
        return self._started[node].poll()

    def pid(self, node: str) -> int | None:
        """Return the id of a process that runs."""
        return self._started[node].pid if self.is_running(node) else None

    async def end_all(self) -> None:
        """Ask all processes to end, at the same time; nothing starts after that."""
        self._is_over = True
        running = [name for name in reversed(self._started) if self.is_running(name)]
        await asyncio.gather(*(self.stop(name) for name in running))

    async def kill_all(self) -> None:
        """Kill all processes; nothing starts after that."""
        self._is_over = True
        for name in self._started:
            self._started[name].kill()
        for name in self._started:
            await self._ended(name)

    # surface.Folders

    def folder(self, node: str) -> Path:
        return self._folder / node / "data" / self._groups[node]

    async def is_sound(self, node: str) -> bool:
        return not (await self._look_after(node, "--check")).code

    async def repair(self, node: str) -> None:
        """See `surface.Folders`. The newest folder that was set aside stays, as evidence.

        Older ones would fill the member's disk.
        """
        folder = self.folder(node)
        before = sorted(folder.parent.glob(f"{folder.name}{ASIDE}*"))
        done = await self._look_after(node, "--yes")
        if done.code:
            raise CannotRepair(done.said.strip())
        for older in before:
            await asyncio.to_thread(shutil.rmtree, older)

    async def _look_after(self, node: str, option: str) -> Ended:
        return await tool(
            sys.executable, "-m", "dledger_broker.cli", "repair", option, str(self.folder(node)),
            seconds=REPAIR_SECONDS,
        )  # fmt: skip

    # surface.Syncs

    async def slow(self, node: str, seconds: float) -> None:
        self._control(node, replace(self._controls[node], sync_seconds=seconds))

    async def fail(self, node: str) -> None:
        self._control(node, replace(self._controls[node], sync_fails=True))

    # surface.Clocks

    async def shift(self, node: str, seconds: float, rate: float) -> None:
        control = self._controls[node]
        self._control(node, replace(control, clock_seconds=seconds, clock_rate=rate))

    def _control(self, node: str, control: Control) -> None:
        self._controls[node] = control
        control.write(self._folder / node / "control.json")


class ProcessBackend(Backend):
    """Processes of this machine, a proxy on each link. Needs no root."""

    name = "process"
    has_mutants = can_be_secure = True
    group = GROUP

    def __init__(self, wanted: WantedCluster) -> None:
        folder, nodes = wanted.folder, wanted.node_names
        self.nodes = nodes
        self._folder = folder
        self._settings = wanted.settings
        self._groups = {
            node: f"group-{number // wanted.nodes + 1}" for number, node in enumerate(nodes)
        }
        self._members = LocalMembers(folder, self._groups, wanted.mutant, self._within)
        self.processes = self.folders = self.syncs = self.clocks = self._members
        self.missing = {}
        self._loop_disks: LoopDisks | None = None
        self._member_cgroups: MemberCgroups | None = None
        if why_not := loop_disk.why_not():
            self.missing["disks"] = why_not
        else:
            self.disks = self._loop_disks = LoopDisks(folder, nodes, self._members)
        if why_not := cgroup.why_not():
            self.missing["cgroups"] = why_not
        else:
            self.cgroups = self._member_cgroups = MemberCgroups(nodes, self._members.pid)
        self._lay_out_network()
        self._security = Security(folder / "tls" if wanted.secure else None)
        self.tls_folder = self._security.of_clients
        if wanted.broker_groups > 1:
            self.parts = [self._part(group) for group in dict.fromkeys(self._groups.values())]

    def _part(self, group: str) -> Backend:
        """Return this cluster with the members of one broker group alone."""
        part = copy.copy(self)
        part.group, part.nodes = group, tuple(self._of_group(group))
        return part

    def _of_group(self, group: str) -> list[str]:
        return [node for node, mine in self._groups.items() if mine == group]

    @classmethod
    def own_namespaces(cls) -> Sequence[str]:
        """See `surface.Backend`: a mount namespace, when members have disks of their own."""
        return () if loop_disk.why_not() else ("mount",)

    # The network. Backends with another network override these methods.

    def _lay_out_network(self) -> None:
        names = [*NAME_SERVERS, *self.nodes]
        groups = self._groups
        self._links = [
            (a, b) for a in self.nodes for b in self.nodes if a != b and groups[a] == groups[b]
        ]
        self._links += [(CLIENTS, node) for node in self.nodes]
        between = [link for link in self._links if link[0] != CLIENTS]
        ports = iter(free_ports(len(names) + len(self.nodes) + len(self._links) + len(between)))
        self._ports = dict(zip(names, ports, strict=False))
        self._raft_ports = {node: next(ports) for node in self.nodes}
        """Where members take the links of their peers."""
        self._link_ports = {link: next(ports) for link in self._links}
        self._raft_link_ports = {link: next(ports) for link in between}
        self._proxies = LinkProxies()
        self.network = self._proxies

    def _within(self, name: str) -> list[str]:
        """Return the command within which a process is started."""
        del name
        return []

    def _proxied(self) -> list[tuple[str, str, int, str, int]]:
        """Return a row for each proxy: from, to, port, target host, target port."""
        rows = [(a, b, port, HOST, self._ports[b]) for (a, b), port in self._link_ports.items()]
        for (a, b), port in self._raft_link_ports.items():
            rows.append((a, b, port, HOST, self._raft_ports[b]))
        return rows

    async def _start_network(self) -> None:
        await self._proxies.start(self._proxied())

    async def _stop_network(self) -> None:
        await self._proxies.stop()

    def _peer_address(self, node: str, peer: str) -> str:
        """Return the address at which a member reaches a peer, or listens itself."""
        if node == peer:
            return self.inner_address(node)
        return f"{HOST}:{self._link_ports[node, peer]}"

    def _raft_address(self, node: str, peer: str) -> str:
        """Return the address at which a member reaches a peer's links, or takes links itself."""
        port = self._raft_ports[peer] if node == peer else self._raft_link_ports[node, peer]
        return f"{HOST}:{port}"

    # surface.Backend

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(name) for name in NAME_SERVERS)

    def address(self, node: str) -> str:
        port = self._link_ports.get((CLIENTS, node))
        return self.inner_address(node) if port is None else f"{HOST}:{port}"

    def inner_address(self, node: str) -> str:
        return f"{HOST}:{self._ports[node]}"

    def _host(self, name: str) -> str:
        return split_address(self.inner_address(name))[0]

    def pid(self, node: str) -> int | None:
        return self._members.pid(node)

    def describe(self) -> str:
        where = ", ".join(f"{node} {self.inner_address(node)}" for node in self.nodes)
        how = "processes with TLS" if self.tls_folder else "processes"
        return f"{how} below {self._folder}: {where}"

    async def start(self) -> None:
        if self._loop_disks is not None and not namespaces.is_inside("mount"):
            raise CannotRun("disks need a mount namespace of the run: start it by its command line")
        for node in self.nodes:
            (self._folder / node).mkdir(parents=True)
        if self._loop_disks is not None:
            await self._loop_disks.attach()
        for node in self.nodes:
            (self._folder / node / "config.toml").write_text(self._config(node))
        hosts = {node: self._host(node) for node in self.nodes}
        await self._security.make(self._groups, hosts, map(self._host, NAME_SERVERS))
        await self._start_network()
        for name in NAME_SERVERS:
            options = ["--listen", self.address(name), *self._security.of_name_server()]
            self._members.spawn(name, ["dledger_namesrv", *options])
        for node in self.nodes:
            await self._members.start(node)

    async def stop(self) -> None:
        await self._end(self._members.end_all())

    async def abort(self) -> None:
        await self._end(self._members.kill_all())

    async def _end(self, members_end: Awaitable[None]) -> None:
        """End the members, then each other part, whether or not the part before it failed."""
        async with AsyncExitStack() as rest:
            if self._member_cgroups is not None:
                rest.push_async_callback(self._member_cgroups.remove)
            if self._loop_disks is not None:
                rest.push_async_callback(self._loop_disks.detach)
            rest.push_async_callback(self._stop_network)
            await members_end

    def _config(self, node: str) -> str:
        group = self._groups[node]
        peers = {peer: self._peer_address(node, peer) for peer in self._of_group(group)}
        servers = [self.address(name) for name in NAME_SERVERS]
        lines = [
            f"cluster = {json.dumps(CLUSTER)}",
            self._security.of_member(node),
            f"member = {json.dumps(node)}",
            f"listen = {json.dumps(self.inner_address(node))}",
            f"link_listen = {json.dumps(self._raft_address(node, node))}",
            f"folder = {json.dumps(str((self._folder / node / 'data').absolute()))}",
            f"name_servers = {json.dumps(servers)}",
            f"control_group = {json.dumps(GROUP)}",
            *(f"{key} = {json.dumps(value)}" for key, value in self._settings.items()),
            "",
            "[group]",
            f"name = {json.dumps(group)}",
            "",
            "[group.members]",
            *(f"{peer} = {json.dumps(address)}" for peer, address in peers.items()),
            "",
            "[group.links]",
            *(f"{peer} = {json.dumps(self._raft_address(node, peer))}" for peer in peers),
            "",
            "[group.clients]",
            *(f"{peer} = {json.dumps(self.address(peer))}" for peer in peers),
        ]
        return "\n".join(lines) + "\n"
