"""Finds what a docker engine leaves on a machine, and removes it.

An engine that ends leaves its bridge, its packet filter rules and chains, forwarding switched on,
empty control groups and some files. Its mounts it makes in a mount namespace of its own (`engine`),
so they go with it. Only what carries an engine's names, and was not there before, is touched.

What stays is an empty table with default policies: `iptables` has no command that removes it.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

FILTERS = ("iptables", "ip6tables")
OF_AN_ENGINE = re.compile(r"\bDOCKER\b|DOCKER-|\bdocker0\b|\bbr-[0-9a-f]{12}\b")
LINK_OF_AN_ENGINE = re.compile(r"docker0|br-[0-9a-f]{12}")
SWITCHES = tuple(
    Path("/proc/sys/net") / name
    for name in (
        "ipv4/ip_forward",
        "ipv6/conf/all/forwarding",
        "bridge/bridge-nf-call-iptables",
        "bridge/bridge-nf-call-ip6tables",
    )
)
FILES = (Path("/run/docker"), Path("/run/containerd"), Path("/etc/docker/key.json"))
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Traces:
    """What an engine has made on this machine, and what an engine may change."""

    links: frozenset[str]
    rules: frozenset[tuple[str, str, str]]
    """(command, table, rule or chain), with the names of an engine."""
    policies: dict[tuple[str, str, str], str]
    """By (command, table, chain): the policy for forwarded packets, where it is not ACCEPT."""
    switches: dict[Path, str]
    files: frozenset[Path]
    cgroups: frozenset[Path]

    @classmethod
    def look(cls, cgroup_parent: str) -> Self:
        """Look around."""
        rules: set[tuple[str, str, str]] = set()
        policies: dict[tuple[str, str, str], str] = {}
        for command, table, line in _filters():
            if line.startswith(":"):
                chain, policy, _ = line[1:].split(" ", 2)
                if chain == "FORWARD" and policy != "ACCEPT":
                    policies[command, table, chain] = policy
            if OF_AN_ENGINE.search(line):
                rules.add((command, table, re.sub(r" \[\d+:\d+\]$", "", line)))
        return cls(
            links=frozenset(filter(LINK_OF_AN_ENGINE.fullmatch, os.listdir("/sys/class/net"))),
            rules=frozenset(rules),
            policies=policies,
            switches={path: path.read_text().strip() for path in SWITCHES if path.exists()},
            files=frozenset(path for path in FILES if path.exists()),
            cgroups=frozenset(
                Path(folder, cgroup_parent)
                for folder, inner, _ in os.walk(CGROUPS)
                if cgroup_parent in inner
            ),
        )


def _filters() -> Iterator[tuple[str, str, str]]:
    """Yield (command, table, line) of everything in the packet filters."""
    for command in FILTERS:
        if not shutil.which(f"{command}-save"):
            continue
        saved = subprocess.run([f"{command}-save"], capture_output=True, text=True, check=False)
        table = ""
        for line in saved.stdout.splitlines():
            if line.startswith("*"):
                table = line[1:]
            elif line.startswith((":", "-A ")):
                yield command, table, line


def take_away(before: Traces, cgroup_parent: str) -> list[str]:
    """Restore the state of before; return a sentence for each thing that could not be restored."""
    now = Traces.look(cgroup_parent)
    for link in now.links - before.links:
        _run("ip", "link", "delete", link)
    added = sorted(now.rules - before.rules)  # rules ("-A") come before chains (":")
    for command, table, line in added:
        if line.startswith("-A "):
            _run(command, "-t", table, "-D", *shlex.split(line)[1:])
    for command, table, line in added:
        if line.startswith(":"):
            _run(command, "-t", table, "-X", line[1:].split(" ")[0])
    for (command, table, chain), policy in now.policies.items():
        if before.policies.get((command, table, chain)) != policy:
            wanted = before.policies.get((command, table, chain), "ACCEPT")
            _run(command, "-t", table, "-P", chain, wanted)
    for path, value in before.switches.items():
        if path.read_text().strip() != value:
            path.write_text(value)
    for path in now.files - before.files:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for top in now.cgroups - before.cgroups:
        for folder, _, _ in os.walk(top, topdown=False):
            os.rmdir(folder)
    return list(_differences(before, Traces.look(cgroup_parent)))


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=False)


def _differences(before: Traces, after: Traces) -> Iterator[str]:
    for what in ("links", "rules", "policies", "switches", "files", "cgroups"):
        first, last = getattr(before, what), getattr(after, what)
        if first != last:
            yield f"{what} were {first}, are {last}"
