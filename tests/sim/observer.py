"""Gathers the facts after each step, from logs and disks, and tells the invariants.

Owns: noticing what changed since the last look (roles, logs, commits, disks), cheaply: a look
compares a few numbers and the chain CRC of the last entry, and walks only what is new.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from dledger.log import CommitLog
from dledger.raft.api import PeerMessage, Role
from dledger.raft.group import Group
from dledger.types import Entry, EntryRef, LogIndex
from tests.sim.durable import DurableView
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property, Violation


class Watched(Protocol):
    """A running member as the observer needs it."""

    name: str
    group: Group
    log: CommitLog
    view: DurableView


class Observer:
    """All invariants of one world."""

    def __init__(self, facts: Facts, invariants: Sequence[Invariant]) -> None:
        self.facts = facts
        self.counts: Counter[str] = Counter()
        self._start = _overriding(invariants, "on_start")
        self._role = _overriding(invariants, "on_role")
        self._log = _overriding(invariants, "on_log")
        self._durable = _overriding(invariants, "on_durable")
        self._commit = _overriding(invariants, "on_commit")
        self._apply = _overriding(invariants, "on_apply")
        self._send = _overriding(invariants, "on_send")

    # Processes.

    def started(self, member: Watched, applied: int, digest: bytes) -> None:
        """Take a process that has opened its log: compare what it found with what it had."""
        facts = self.facts.members.setdefault(member.name, MemberFacts(member.name))
        facts.boot += 1
        facts.role = Role.UNFORMED
        facts.commit = 0
        facts.applied = applied
        self._forget_lost(member, facts)
        self.look_log(member, facts, restart=True)
        facts.durable = 0
        self.look_durable(member, facts)
        for hook in self._start:
            hook(facts, applied, digest)

    def wiped(self, name: str) -> None:
        """Take a disk that is gone. What it held still counts as acknowledged (`Facts.holders`)."""
        facts = self.facts.members.get(name)
        if facts is not None:
            self.facts.members[name] = MemberFacts(name, boot=facts.boot)

    def _forget_lost(self, member: Watched, facts: MemberFacts) -> None:
        """Drop the unsynced tail that a crash took: nobody counted on it."""
        last = int(member.log.last_index)
        for index in range(last + 1, facts.last + 1):
            ref = facts.log.pop(index, None)
            if ref is not None and member.name in self.facts.holders.get(ref.crc, ()):
                raise Violation(
                    Property.DURABLE_BEFORE_VISIBLE,
                    f"{member.name}: {ref} was on disk, and is gone after a restart",
                )
        facts.last = min(facts.last, last)

    # Looking.

    def look(self, member: Watched) -> None:
        """Compare a member with what was known of it."""
        facts = self.facts.members[member.name]
        group, log = member.group, member.log
        if log.last_index != facts.last or log.last_crc != self._last_crc(facts):
            self.look_log(member, facts)
        if log.durable_index != facts.durable:
            self.look_durable(member, facts)
        role, term = group.role, int(group.term)
        if role is not facts.role or term != facts.term:
            if role is Role.LEADER and (facts.role is not Role.LEADER or term != facts.term):
                self.counts["leader changes"] += 1
            facts.role = role
            previous, facts.term = facts.term, term
            assert role is not None and previous >= 0
            for hook in self._role:
                hook(facts)
        commit = int(group.commit_index)
        if commit != facts.commit:
            self.look_commit(facts, commit)

    def _last_crc(self, facts: MemberFacts) -> int:
        ref = facts.log.get(facts.last)
        return ref.crc if ref is not None else -1

    def look_log(self, member: Watched, facts: MemberFacts, *, restart: bool = False) -> None:
        """Find the first entry that differs, by chain CRC from the end, and tell what changed."""
        log = member.log
        last = int(log.last_index)
        same = min(facts.last, last)
        while same > 0 and same in facts.log and facts.log[same] != log.ref(LogIndex(same)):
            same -= 1
        removed = [facts.log.pop(i) for i in range(facts.last, same, -1) if i in facts.log]
        first = max(same + 1, int(log.first_index))
        added = [log.ref(LogIndex(index)) for index in range(first, last + 1)]
        for ref in added:
            facts.log[int(ref.index)] = ref
        facts.last = last
        for ref in removed:
            holders = self.facts.holders.get(ref.crc)
            if holders is not None:
                holders.discard(facts.name)
        if removed and not restart:
            self.counts["truncated suffixes"] += 1
        if removed or added:
            for hook in self._log:
                hook(facts, removed, added)
        facts.durable = min(facts.durable, same)

    def look_durable(self, member: Watched, facts: MemberFacts) -> None:
        """Believe a growing durable index only as far as the disk shows the entries."""
        durable = int(member.log.durable_index)
        found: list[EntryRef] = []
        for index in range(facts.durable + 1, durable + 1):
            ref = facts.log.get(index)
            if ref is None:
                continue  # below the head
            holders = self.facts.holders.setdefault(ref.crc, set())
            if facts.name in holders or member.view.holds(ref):
                holders.add(facts.name)
                found.append(ref)
        facts.durable = durable
        for hook in self._durable:
            hook(facts, found)

    def look_commit(self, facts: MemberFacts, commit: int) -> None:
        """Take a new commit index of a member."""
        world = self.facts
        facts.commit = commit
        new: list[EntryRef] = []
        for index in range(world.committed_last + 1, commit + 1):
            ref = facts.log.get(index)
            if ref is None:
                continue
            world.committed[index] = ref
            new.append(ref)
        world.committed_last = max(world.committed_last, commit)
        if facts.role is Role.LEADER:
            known = world.committed_by_term.get(facts.term, 0)
            world.committed_by_term[facts.term] = max(known, commit)
        for hook in self._commit:
            hook(facts, new)

    # Told by the member while it works.

    def applied(
        self, member: Watched, entry: Entry, results: Sequence[object], digest: bytes
    ) -> None:
        """Take one applied entry."""
        facts = self.facts.members[member.name]
        commit = int(member.group.commit_index)
        if commit != facts.commit:
            self.look(member)
        for hook in self._apply:
            hook(facts, entry, results, digest)
        facts.applied = int(entry.ref.index)

    def sending(self, member: Watched, target: str, message: PeerMessage) -> None:
        """Take a message that leaves now."""
        facts = self.facts.members[member.name]
        for hook in self._send:
            hook(facts, target, message)


def _overriding(invariants: Sequence[Invariant], name: str) -> list[Callable[..., None]]:
    """Return the bound hooks of those who override it: the others cost nothing."""
    return [
        getattr(invariant, name)
        for invariant in invariants
        if getattr(type(invariant), name) is not getattr(Invariant, name)
    ]
