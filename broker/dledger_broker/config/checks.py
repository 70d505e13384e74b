"""The relations between the values of a configuration, and how a problem is written.

Owns the rules that concern more than one value. The rules of a single value stand beside it, in
`model`.
"""

import ipaddress
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import ENTRY_SIZE_MAX, FRAME_SIZE_MAX
from dledger_proto.network.addresses import PORT_MAX, next_port, split_address
from dledger_proto.network.exposure import Security, exposed_because

if TYPE_CHECKING:
    from dledger_broker.config.model import GroupConfig, MemberConfig
    from dledger_broker.config.sections import RaftConfig

EVERY_HOST: Final = "0.0.0.0"
THIS_HOST: Final = "127.0.0.1"
KEY_SHOWN_LENGTH_MAX: Final = 200
"""Longer than the longest right key, `group.members.NAME`."""
LEAST_BYTES: Final[Mapping[str, int]] = {
    "storage.segment_size_bytes": ENTRY_SIZE_MAX,
    "storage.tail_cache_bytes": ENTRY_SIZE_MAX,
    "raft.inflight_bytes_max": ENTRY_SIZE_MAX,
    "raft.uncommitted_bytes_max": ENTRY_SIZE_MAX,
    "raft.waiting_bytes_max": ENTRY_SIZE_MAX,
    "admission.append_bytes_max": FRAME_SIZE_MAX,
    "admission.stream_bytes_max": FRAME_SIZE_MAX,
    "admission.fetch_bytes_max": FRAME_SIZE_MAX,
}
"""Values that must have room for the largest entry or frame, and the size of that."""
HEARTBEATS_PER_ELECTION_TIMEOUT_MIN: Final = 3
"""An election timeout must be longer than this many heartbeats: or healthy leaders are deposed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the key, its value, the limit, and where the value came from."""

    key: str
    value: str
    limit: str
    source: str = ""

    def describe(self) -> str:
        """Return the problem as one line."""
        key = self.key[:KEY_SHOWN_LENGTH_MAX] + "..." * (len(self.key) > KEY_SHOWN_LENGTH_MAX)
        shown = f" = {self.value}" if self.value else ""
        where = f" ({self.source})" if self.source else ""
        return f"{key}{shown}{where}: {self.limit}"


class ConfigError(DledgerError):
    """The configuration cannot be used; `problems` lists what is wrong."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(
            Code.INVALID_ARGUMENT, "; ".join(problem.describe() for problem in problems)
        )
        self.problems = tuple(problems)


def broken_relations(config: "MemberConfig") -> Iterator[Problem]:
    """Yield the problems of values that are right by themselves."""
    yield from _listen_relations(config)
    yield from _group_relations(config)
    yield from _raft_relations(config.raft)
    storage = config.storage
    for key, least in LEAST_BYTES.items():
        section, _, name = key.partition(".")
        value: int = getattr(getattr(config, section), name)
        if value < least:
            limit = f"must be at least {least}, the size of the largest entry or frame"
            yield Problem(key, str(value), limit)
    if storage.disk_low_water_bytes < storage.disk_reserve_bytes:
        yield Problem(
            "storage.disk_low_water_bytes",
            str(storage.disk_low_water_bytes),
            f"must be at least storage.disk_reserve_bytes = {storage.disk_reserve_bytes}",
        )
    if config.security is Security.OFF and config.tls.is_on:
        limit = f"contradicts tls.folder = {config.tls.folder}; leave one of the two out"
        yield Problem("security", config.security.value, limit)
    if config.users and not config.tls.is_on:
        yield Problem("users", "true", "needs tls.folder: members are told by their certificates")
    yield from _room_relations(config)


def unprotected(
    config: "MemberConfig", resolve: Callable[[str], Collection[str]]
) -> Iterator[Problem]:
    """Yield the addresses of this process that others may reach, when nothing protects them.

    Each host once. `resolve` returns the numbers of a host by name.
    """
    if config.tls.is_on or config.security is Security.OFF:
        return
    hosts: set[str] = set()
    for key, address in _own_addresses(config):
        host = split_address(address)[0]
        why = "" if host in hosts else exposed_because(address, resolve)
        hosts.add(host)
        if why:
            yield Problem(key, address, f'{why}; set tls.folder, or write security = "off"')


def _own_addresses(config: "MemberConfig") -> Iterator[tuple[str, str]]:
    """Yield where this process is reached: what it listens on, and what others are told."""
    yield "listen", config.listen
    yield "link_listen", config.link_listen
    for group in config.groups:
        for name, table in (
            ("members", group.members),
            ("clients", group.clients),
            ("links", group.links),
        ):
            yield f"{_key_of(group, config)}.{name}.{group.member}", table[group.member]


def _room_relations(config: "MemberConfig") -> Iterator[Problem]:
    """Check that a low or full disk has room for the bytes that may still come (I16)."""
    storage, groups = config.storage, len(config.groups)
    reserves = storage.disk_reserve_bytes * groups
    if storage.disk_low_water_bytes + reserves == 0:
        return
    for share, divisor, key in (
        ("it", 1, "uncommitted_bytes_max"),
        ("half of it", 2, "inflight_bytes_max"),
    ):
        room = storage.disk_low_water_bytes // divisor + reserves
        coming = (getattr(config.raft, key) + ENTRY_SIZE_MAX) * groups
        if room < coming:
            yield Problem(
                "storage.disk_low_water_bytes",
                str(storage.disk_low_water_bytes),
                f"{share} and storage.disk_reserve_bytes = {storage.disk_reserve_bytes} of each "
                f"group must hold {coming} bytes: raft.{key} and one entry of each group, which "
                "may still come when the disk is that full",
            )


def _raft_relations(raft: "RaftConfig") -> Iterator[Problem]:
    needed_ms = HEARTBEATS_PER_ELECTION_TIMEOUT_MIN * raft.heartbeat_ms
    if needed_ms >= raft.election_timeout_min_ms:
        yield Problem(
            "raft.election_timeout_min_ms",
            str(raft.election_timeout_min_ms),
            f"must be above {needed_ms}, {HEARTBEATS_PER_ELECTION_TIMEOUT_MIN} times "
            f"raft.heartbeat_ms = {raft.heartbeat_ms}",
        )
    if raft.election_timeout_min_ms >= raft.election_timeout_max_ms:
        yield Problem(
            "raft.election_timeout_max_ms",
            str(raft.election_timeout_max_ms),
            f"must be above raft.election_timeout_min_ms = {raft.election_timeout_min_ms}",
        )


def _listen_relations(config: "MemberConfig") -> Iterator[Problem]:
    port = split_address(config.listen)[1]
    if config.link_listen:
        link_port = split_address(config.link_listen)[1]
        if link_port == port:
            limit = f"has the port of listen = {config.listen}; links need a port of their own"
            yield Problem("link_listen", config.link_listen, limit)
            return
    elif port == PORT_MAX:
        yield Problem("listen", config.listen, "has no port above; set link_listen")
        return
    else:
        link_port = port + 1
    metrics = config.metrics.listen
    if metrics and split_address(metrics)[1] in (port, link_port):
        limit = "is also the port of listen or link_listen; metrics need their own port"
        yield Problem("metrics.listen", metrics, limit)
    yield from _own_link_relations(config, link_port)


def _own_link_relations(config: "MemberConfig", link_port: int) -> Iterator[Problem]:
    """The others must dial the port on which this process takes its links; `links` may forward."""
    first, first_dialled = "", 0
    for group in config.groups:
        key, own = _key_of(group, config), group.member or config.member
        if len(group.members) == 1 or own not in (group.links or group.members):
            continue
        table = "links" if group.links else "members"
        address: str = getattr(group, table)[own]
        where = f"{key}.{table}.{own} = {address}"
        dialled = split_address(address)[1] + (not group.links)
        if not group.links and dialled != link_port:
            name = "link_listen" if config.link_listen else "listen"
            limit = (
                f"links are taken on port {link_port}, and the other members dial {dialled}, the "
                f"port above {where}: set {key}.links"
            )
            yield Problem(name, getattr(config, name), limit)
        elif not first:
            first, first_dialled = where, dialled
        elif dialled != first_dialled:
            limit = (
                f"the other members dial port {dialled} for links, and {first_dialled} by {first}: "
                "a process takes the links of all its groups on one port"
            )
            yield Problem(f"{key}.{table}.{own}", address, limit)


def _key_of(group: "GroupConfig", config: "MemberConfig") -> str:
    return f"group {group.name}" if len(config.groups) > 1 else "group"


def _group_relations(config: "MemberConfig") -> Iterator[Problem]:
    names: set[str] = set()
    folders: dict[Path, str] = {}
    for group in config.groups:
        key = _key_of(group, config)
        if group.name in names:
            yield Problem(f"{key}.name", group.name, "two groups of one process have this name")
        names.add(group.name)
        folder = group.folder if group.folder != Path() else config.folder / group.name
        if folder in folders and folders[folder] != group.name:
            yield Problem(f"{key}.folder", str(folder), f"is also the folder of {folders[folder]}")
        folders[folder] = group.name
        member = group.member or config.member
        if member not in group.members:
            listed = ", ".join(group.members)
            yield Problem(f"{key}.members", listed, f"must contain this member, {member!r}")
        yield from _address_relations(f"{key}.members", group.members)
        yield from _address_relations(f"{key}.clients", group.clients)
        yield from _link_relations(key, group)
        for name, table in (("clients", group.clients), ("links", group.links)):
            if table and set(table) != set(group.members):
                listed, wanted = ", ".join(table), ", ".join(group.members)
                yield Problem(f"{key}.{name}", listed, f"must name exactly the members: {wanted}")


def _link_relations(key: str, group: "GroupConfig") -> Iterator[Problem]:
    """Links have ports of their own: those that are given, or those above the members'."""
    yield from _address_relations(f"{key}.links", group.links)
    served = {
        _place(address): f"{key}.members.{member} = {address}"
        for member, address in group.members.items()
    }
    for member, address in group.links.items():
        if _place(address) in served:
            limit = f"is also {served[_place(address)]}; links need a port of their own"
            yield Problem(f"{key}.links.{member}", address, limit)
    for member, address in group.members.items():
        if group.links:
            continue
        if split_address(address)[1] == PORT_MAX:
            yield Problem(f"{key}.members.{member}", address, f"has no port above; set {key}.links")
        elif len(group.members) > 1 and _place(next_port(address)) in served:
            whose = served[_place(next_port(address))]
            limit = f"the port above, on which its links are dialled, is {whose}: set {key}.links"
            yield Problem(f"{key}.members.{member}", address, limit)


def _address_relations(key: str, addresses: Mapping[str, str]) -> Iterator[Problem]:
    seen: dict[tuple[str, int], str] = {}
    for member, address in addresses.items():
        place = _place(address)
        if place[0] == EVERY_HOST:
            limit = "is an address to listen on; give the address where others reach this member"
            yield Problem(f"{key}.{member}", address, limit)
        if place in seen:
            yield Problem(f"{key}.{member}", address, f"is also the address of {seen[place]}")
        seen[place] = member


def _place(address: str) -> tuple[str, int]:
    """Return host and port in one spelling, to be compared. Nobody is asked for names."""
    host, port = split_address(address)
    host = host.lower().strip("[]")
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return THIS_HOST if host == "localhost" else host, port
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    if ip.is_unspecified:
        return EVERY_HOST, port
    return THIS_HOST if ip == ipaddress.IPv6Address("::1") else str(ip), port
