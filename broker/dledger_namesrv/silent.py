"""Members that belong to a group and are not listed: what people ask for by `dledger status`. Pure.

Owns: which members a group's registrations named, where they were, and when each was heard last.
Not owned: leases and routes. No client is sent to an address of this module. A group without a
listed member is remembered for KEPT_SECONDS. Of more than GROUPS_MAX such groups, the group that
fell silent first is forgotten.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from dledger_proto.v1.routes_pb2 import GroupRoute, SilentMember

KEPT_SECONDS: Final = 7 * 24 * 3_600.0
GROUPS_MAX: Final = 1_000
MEMBERS_PER_GROUP_MAX: Final = 16
"""More than the seven voters, because a replaced member stays listed until its lease ends."""


@dataclass(frozen=True, slots=True)
class Last:
    """What a member that is not listed any more told last, and when, in seconds."""

    address: str
    peer_address: str
    heard_at: float


@dataclass(slots=True)
class _SilentGroup:
    control_group: bool = False
    configured: Collection[str] = ()
    left: dict[str, Last] = field(default_factory=dict[str, Last])


class SilentMembers:
    """The members that are missing."""

    def __init__(self) -> None:
        self._cluster = ""
        self._groups: dict[str, _SilentGroup] = {}
        """The groups that a member left, in the order in which members left them last."""

    def left(
        self, group: str, configured: Collection[str], member: str, last: Last, *, control: bool
    ) -> None:
        """Note that a member is not listed any more."""
        known = self._groups.pop(group, None) or _SilentGroup()
        self._groups[group] = known
        known.control_group, known.configured = control, tuple(configured)
        known.left.pop(member, None)
        known.left[member] = last
        if len(known.left) > MEMBERS_PER_GROUP_MAX:
            del known.left[next(iter(known.left))]
        if len(self._groups) > GROUPS_MAX:
            del self._groups[next(iter(self._groups))]

    def forget(self, now: float) -> None:
        """Forget groups that are silent for too long."""
        for name, group in list(self._groups.items()):
            if all(last.heard_at + KEPT_SECONDS <= now for last in group.left.values()):
                del self._groups[name]

    def serve(self, cluster: str) -> None:
        """Forget the groups of another cluster: the name server serves this one from now on."""
        if cluster != self._cluster:
            self._cluster = cluster
            self._groups.clear()

    def of(
        self, group: str, configured: Collection[str], listed: Collection[str], now: float
    ) -> Iterator[SilentMember]:
        """Yield the members of a group that are not listed, in order of their names."""
        known = self._groups.get(group)
        left = known.left if known is not None else {}
        for name in sorted(set(configured or left) - set(listed)):
            member, last = SilentMember(member=name), left.get(name)
            if last is not None:
                member.address, member.peer_address = last.address, last.peer_address
                member.silent_ms = max(round((now - last.heard_at) * 1_000), 1)
            yield member

    def groups(self, listed: Collection[str], now: float) -> Iterator[GroupRoute]:
        """Yield the groups without a listed member, in order of their names."""
        for name in sorted(self._groups.keys() - set(listed)):
            known = self._groups[name]
            yield GroupRoute(
                group=name,
                control_group=known.control_group,
                silent=self.of(name, known.configured, (), now),
            )
