"""With TLS or without: the certificates of a run's cluster, and what its processes are told."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jepsen_tests.backends.surface import CannotRun
from jepsen_tests.processes.child import tool

CLUSTER: Final = "chaos"
CLIENT: Final = "harness"
MAKE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Security:
    """Of one cluster."""

    folder: Path | None
    """Where the certificates are; None: no TLS, and addresses that other machines may reach."""

    async def make(
        self, groups: Mapping[str, str], hosts: Mapping[str, str], of_name_servers: Iterable[str]
    ) -> None:
        """Make an authority and a folder for each process, as users do; CannotRun.

        `groups` and `hosts`: of each member its group and where it listens. Who dials a proxy on
        this machine instead finds its name in every certificate.
        """
        if self.folder is None:
            return
        members = [f"--member={group}/{name}={hosts[name]}" for name, group in groups.items()]
        done = await tool(
            sys.executable, "-m", "dledger_broker.cli", "tls", "init", str(self.folder),
            "--cluster", CLUSTER, "--client", CLIENT, *members,
            "--name-server", ",".join(dict.fromkeys(of_name_servers)), seconds=MAKE_SECONDS,
        )  # fmt: skip
        if done.code:
            raise CannotRun(f"no certificates: {done.said.strip()}")

    @property
    def of_clients(self) -> str:
        """Return the folder for clients; empty: no TLS."""
        return "" if self.folder is None else str(self.folder / f"client-{CLIENT}")

    def of_member(self, name: str) -> str:
        """Return the line of a member's configuration."""
        if self.folder is None:
            return 'security = "off"'
        return f"tls.folder = {json.dumps(str(self.folder / name))}"

    def of_name_server(self) -> list[str]:
        """Return the options of a name server."""
        if self.folder is None:
            return ["--security", "off"]
        return ["--tls-folder", str(self.folder / "name-server")]
