"""A cluster of your own, which runs already and goes on running. Your commands hurt it.

`--bootstrap` names its name servers, which tell the members and their addresses. Without
`--commands` the harness does only what a client can ask for: it hands leadership round.
`--commands` names a TOML file of shell lines that hurt processes and links. They read variables:

    kill   = 'ssh "$HOST" sudo systemctl kill --signal=KILL dledger'
    stop   = 'ssh "$HOST" sudo systemctl stop dledger'
    start  = 'ssh "$HOST" sudo systemctl start dledger'
    pause  = 'ssh "$HOST" sudo systemctl kill --signal=STOP dledger'
    resume = 'ssh "$HOST" sudo systemctl kill --signal=CONT dledger'
    cut    = 'ssh "$HOST" sudo iptables -I INPUT -s "$PEER_HOST" -j DROP'
    heal   = 'ssh "$HOST" sudo iptables -D INPUT -s "$PEER_HOST" -j DROP'

NODE, HOST and PORT are the member's name and published address. For `cut` and `heal` this is the
member that no longer hears PEER (PEER_HOST, PEER_PORT); it still hears all others. Nobody tells the
harness when a member of your cluster ends by itself: the history shows no deaths.
"""

import asyncio
import os
import signal
import tempfile
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from dledger_client import AsyncAdmin, ConnectionConfig, MemberStatus
from dledger_proto.errors import DledgerError
from jepsen_tests.backends.surface import (
    Backend,
    CannotRun,
    Processes,
    Trouble,
    TroubleKind,
    WantedCluster,
)
from jepsen_tests.errors import BadRequest, HarnessFailure, unknown_name

OF_PROCESSES: Final = ("kill", "stop", "start", "pause", "resume")
OF_LINKS: Final = ("cut", "heal")
COMMAND_SECONDS_MAX: Final = 60.0
LOOK: Final = ConnectionConfig(call_timeout_ms=5_000)


def read_commands(path: Path) -> dict[str, str]:
    """Return the lines by name; BadRequest naming what is wrong with the file."""
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadRequest(f"--commands {path}: {error}") from error
    for name, line in found.items():
        if name not in (*OF_PROCESSES, *OF_LINKS):
            raise unknown_name(f"command in {path}", name, (*OF_PROCESSES, *OF_LINKS))
        if not isinstance(line, str) or not line.strip():
            raise BadRequest(f"{path}: {name} = {line!r} must be a shell line")
    return found


class Shell(Processes):
    """Runs the lines. Implements `surface.Processes` and `surface.Network`."""

    kinds = frozenset({TroubleKind.CUT})
    client_kinds = frozenset[TroubleKind]()

    def __init__(self, commands: Mapping[str, str], addresses: Mapping[str, str]) -> None:
        self._commands = commands
        self._addresses = addresses
        self._ended: set[str] = set()
        self._paused: set[str] = set()
        self._cut: dict[tuple[str, str], None] = {}
        """Links, in the order in which they were cut."""

    async def undo_all(self) -> None:
        """Undo every act that may still be in force; HarnessFailure names what cannot be undone.

        A run may be broken off in the middle of a line, also of a line that heals.
        """
        undoing: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            *(
                (f"heal {b} of {a}", partial(self.heal, [(a, b)], TroubleKind.CUT))
                for a, b in self._cut
            ),
            *((f"resume {node}", partial(self.resume, node)) for node in sorted(self._paused)),
            *((f"start {node}", partial(self.start, node)) for node in sorted(self._ended)),
        ]
        failed: list[str] = []
        for what, act in undoing:
            try:
                await act()
            except HarnessFailure as error:
                failed.append(f"{what} ({error})")
        if failed:
            raise HarnessFailure(f"your cluster is still hurt; do by hand: {'; '.join(failed)}")

    async def _run(self, name: str, node: str, peer: str = "") -> None:
        variables = _place("", node, self._addresses)
        if peer:
            variables |= _place("PEER_", peer, self._addresses) | {"PEER": peer}
        # A file and no pipe: a member that the line starts may keep a pipe open while it lives.
        with tempfile.TemporaryFile() as said:
            process = await asyncio.create_subprocess_shell(
                self._commands[name], env={**os.environ, **variables, "NODE": node},
                stdin=asyncio.subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
            try:
                async with asyncio.timeout(COMMAND_SECONDS_MAX):
                    code: int | str = await process.wait()
            except TimeoutError:
                code = f"none within {COMMAND_SECONDS_MAX:g} s"
            finally:
                if process.returncode is None:  # the whole group ends, with what the line started
                    os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
            if code:
                said.seek(0)
                what = said.read().decode(errors="replace").strip()
                raise HarnessFailure(f"command {name} for {node}: exit code {code}: {what}")

    # surface.Processes

    async def kill(self, node: str) -> None:
        self._ended.add(node)
        await self._run("kill", node)

    async def stop(self, node: str) -> None:
        self._ended.add(node)
        await self._run("stop", node)

    async def start(self, node: str) -> None:
        await self._run("start", node)
        self._ended.discard(node)
        self._paused.discard(node)

    async def pause(self, node: str) -> None:
        self._paused.add(node)
        await self._run("pause", node)

    async def resume(self, node: str) -> None:
        if node not in self._ended:
            await self._run("resume", node)
        self._paused.discard(node)

    def is_running(self, node: str) -> bool:
        """See `surface.Processes`: a member that we did not end counts as running."""
        return node not in self._ended

    def exit_code(self, node: str) -> int | None:
        """See `surface.Processes`: 0 stands for an exit code that nobody tells us."""
        return 0 if node in self._ended else None

    # surface.Network

    async def trouble(self, links: Sequence[tuple[str, str]], trouble: Trouble) -> None:
        """See `surface.Network`: the dialled member no longer hears the one that dials."""
        assert trouble.kind is TroubleKind.CUT
        for source, target in links:
            self._cut[source, target] = None
            await self._run("cut", target, source)

    async def heal(self, links: Sequence[tuple[str, str]], kind: TroubleKind) -> None:
        assert kind is TroubleKind.CUT
        for source, target in links:
            await self._run("heal", target, source)
            self._cut.pop((source, target), None)


def _place(prefix: str, node: str, addresses: Mapping[str, str]) -> dict[str, str]:
    host, _, port = addresses[node].rpartition(":")
    return {f"{prefix}HOST": host.strip("[]"), f"{prefix}PORT": port}


class OwnBackend(Backend):
    """A cluster of your own that runs already (`--bootstrap`), hurt by your `--commands`."""

    name = "own"
    is_kept = True

    def __init__(self, wanted: WantedCluster) -> None:
        if not wanted.bootstrap:
            raise BadRequest("backend own needs --bootstrap: the name servers of your cluster")
        self._bootstrap = wanted.bootstrap
        self.group = wanted.group
        self._commands = {} if wanted.commands is None else read_commands(wanted.commands)
        self._addresses: dict[str, str] = {}
        yours = "it is your own cluster"
        self.missing = dict.fromkeys(("folders", "disks", "syncs", "clocks", "cgroups"), yours)
        self._shell = shell = Shell(self._commands, self._addresses)
        if self._has("processes", OF_PROCESSES):
            self.processes = shell
        if self._has("network", OF_LINKS):
            self.network = shell
        self.never = tuple(self.missing)

    def _has(self, handle: str, names: Sequence[str]) -> bool:
        lacking = [name for name in names if name not in self._commands]
        if lacking:
            self.missing[handle] = f"--commands has no {', '.join(lacking)}"
        return not lacking

    async def prepare(self) -> None:
        try:
            async with AsyncAdmin(self._bootstrap, LOOK) as admin:
                found = await admin.statuses()
        except DledgerError as error:
            raise CannotRun(f"--bootstrap {self._bootstrap}: {error}") from error
        except ValueError as error:
            raise BadRequest(f"--bootstrap {self._bootstrap}: {error}") from error
        groups = sorted({group for group, _ in found})
        if not groups:
            raise CannotRun(f"--bootstrap {self._bootstrap}: no group is registered there")
        if not self.group and len(groups) > 1:
            raise BadRequest(f"--group is needed, there are: {', '.join(groups)}")
        self.group = self.group or groups[0]
        if self.group not in groups:
            raise unknown_name("group", self.group, groups)
        for (group, node), status in sorted(found.items(), key=lambda each: each[0]):
            if group == self.group:
                if not isinstance(status, MemberStatus):
                    raise CannotRun(f"{node} of {group} does not answer: {status}")
                self._addresses[node] = status.address
        self.nodes = tuple(self._addresses)

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    def address(self, node: str) -> str:
        return self._addresses[node]

    def describe(self) -> str:
        where = ", ".join(f"{node} {address}" for node, address in self._addresses.items())
        return f"group {self.group} of your own cluster: {where}"

    async def start(self) -> None:
        """See `surface.Backend`: the cluster runs already."""

    async def stop(self) -> None:
        """See `surface.Backend`: the cluster goes on, as the run found it."""
        await self._shell.undo_all()
