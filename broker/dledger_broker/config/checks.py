"""The relations between the values of a configuration, and how a problem is written.

Owns the rules that concern more than one value. The rules of a single value stand beside it, in
`model`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import ENTRY_SIZE_MAX, FRAME_SIZE_MAX
from dledger_proto.network.addresses import PORT_MAX, next_port, split_address

if TYPE_CHECKING:
    from dledger_broker.config.model import GroupConfig, MemberConfig, RaftConfig

LISTEN_ONLY_HOSTS: Final = frozenset({"0.0.0.0", "[::]"})
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
    yield from _room_relations(config)


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
    if not config.link_listen and split_address(config.listen)[1] == PORT_MAX:
        yield Problem("listen", config.listen, "has no port above; set link_listen")
    if config.link_listen == config.listen:
        yield Problem("link_listen", config.link_listen, "is listen; links need their own port")


def _group_relations(config: "MemberConfig") -> Iterator[Problem]:
    names: set[str] = set()
    folders: dict[Path, str] = {}
    for group in config.groups:
        key = f"group {group.name}" if len(config.groups) > 1 else "group"
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
    links = dict(group.links)
    for member, address in group.members.items():
        if not group.links and split_address(address)[1] == PORT_MAX:
            yield Problem(f"{key}.members.{member}", address, "has no port above; set `links`")
        elif not group.links:
            links[member] = next_port(address)
    yield from _address_relations(f"{key}.links", group.links)
    served = {address.lower(): member for member, address in group.members.items()}
    for member, address in links.items():
        if address.lower() in served:
            whose = served[address.lower()]
            limit = f"links of {member} are there, and {whose} serves there: set `links`"
            yield Problem(f"{key}.members.{whose}", address, limit)


def _address_relations(key: str, addresses: Mapping[str, str]) -> Iterator[Problem]:
    seen: dict[tuple[str, int], str] = {}
    for member, address in addresses.items():
        host, port = split_address(address)
        if host in LISTEN_ONLY_HOSTS:
            limit = "is an address to listen on; give the address where others reach this member"
            yield Problem(f"{key}.{member}", address, limit)
        place = host.lower(), port
        if place in seen:
            yield Problem(f"{key}.{member}", address, f"is also the address of {seen[place]}")
        seen[place] = member
