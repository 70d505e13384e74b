"""The containers of a compose file, under a project name and on ports of their own.

Owns the commands. Clients tell who leads and what is stored.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dledger_proto.network.ports import free_ports
from jepsen_tests.docker.engine import ROOT, DockerEngine
from jepsen_tests.errors import HarnessFailure

COMPOSE = Path(sys.prefix) / "bin" / "docker-compose"
"""The development lock installs it."""
UP_SECONDS = 120
BUILD_SECONDS = 420
COMMAND_SECONDS = 90


class CommandFailed(HarnessFailure):
    """A docker or compose command ended with an error."""


class Stack:
    """One project: name servers `ns1`, `ns2`, and members."""

    def __init__(
        self,
        used: DockerEngine,
        file: str,
        image: str,
        base: str,
        members: Sequence[str],
        *more_files: Path,
        **variables: str,
    ):
        """Of the compose file `deploy/<file>.yaml`, and what more files and variables change."""
        self.members = tuple(members)
        self.image = image
        self.project = f"dledger-test-{file.replace('.', '-')}-{os.getpid()}"
        self._files = (ROOT / "deploy" / f"{file}.yaml", *more_files)
        names = ("ns1", "ns2", *members)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._environment = used.environment | {
            "IMAGE": image,
            "BASE_IMAGE": base,
            **{f"{name.upper()}_PORT": str(port) for name, port in self.ports.items()},
            **variables,
        }

    @property
    def name_servers(self) -> str:
        """Where clients outside find the name servers."""
        return f"localhost:{self.ports['ns1']},localhost:{self.ports['ns2']}"

    def address(self, member: str) -> str:
        """Where clients outside find a member."""
        return f"localhost:{self.ports[member]}"

    def container(self, name: str) -> str:
        """The container of a service."""
        return f"{self.project}-{name}-1"

    @property
    def network(self) -> str:
        """The network that the containers share."""
        return f"{self.project}_default"

    async def build(self) -> None:
        """Build the image."""
        await self.compose("build", seconds=BUILD_SECONDS)

    async def up(self) -> None:
        """Start everything; return when every health check succeeds."""
        await self.compose("up", "--wait", "--wait-timeout", str(UP_SECONDS))

    async def down(self) -> None:
        """Take containers, volumes and network away."""
        await self.compose("down", "--volumes", "--timeout", "2")

    async def compose(self, *arguments: str, seconds: float = COMMAND_SECONDS + UP_SECONDS) -> str:
        """Run a compose command."""
        files = [word for file in self._files for word in ("--file", str(file))]
        start = (str(COMPOSE), "--project-name", self.project, *files)
        return await self.run(*start, *arguments, seconds=seconds)

    async def docker(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> str:
        """Run a docker command."""
        return await self.run("docker", *arguments, seconds=seconds)

    async def each(self, command: str, *members: str) -> None:
        """Run one docker command for the containers of these members."""
        await self.docker(command, *map(self.container, members))

    async def run(self, *command: str, seconds: float = COMMAND_SECONDS) -> str:
        """Run any command; return its standard output."""
        process = await asyncio.create_subprocess_exec(
            *command, env=self._environment, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C goes to the harness, which ends containers in order
        )  # fmt: skip
        try:
            async with asyncio.timeout(seconds):
                answer, errors = await process.communicate()
        except TimeoutError:
            raise CommandFailed(f"{' '.join(command)}: not done within {seconds} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            said = (errors + answer).decode(errors="replace").strip()
            raise CommandFailed(f"{' '.join(command)}: exit code {process.returncode}: {said}")
        return answer.decode()
