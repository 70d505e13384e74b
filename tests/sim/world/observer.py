"""Gathers the facts after each step, from logs and disks, and tells the invariants.

Owns: noticing what changed since the last look (roles, logs, commits, disks), cheaply: a look
compares a few numbers and the chain CRC of the last entry, and walks only what is new.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from dledger.log.commit_log import CommitLog
from dledger.raft.api import Role
from dledger.raft.group import RaftGroup
from dledger.raft.wire.messages import Message
from dledger.types import Entry, EntryRef, LogIndex
from tests.sim.disk.durable import DurableView
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property, Violation


class Watched(Protocol):
    """A running member as the observer needs it."""

    name: str
    view: DurableView

    @property
    def group(self) -> RaftGroup:
        """Return its group."""
        ...

    @property
    def log(self) -> CommitLog:
        """Return its log."""
        ...


class Observer:
    """All invariants of one world."""

    def __init__(self, facts: Facts, invariants: Sequence[Invariant]) -> None:
        self.facts = facts
        self.counts: Counter[str] = Counter()
        self._has_led = False
        self._start = _overriding(invariants, "on_start")
        self._role = _overriding(invariants, "on_role")
        self._log = _overriding(invariants, "on_log")
        self._stamp = _overriding(invariants, "on_stamp")
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
        self.look_log(member, facts, restart=True)
        facts.is_copy = False
        facts.durable = 0
        self.look_durable(member, facts)
        for hook in self._start:
            hook(facts, applied, digest)

    def wiped(self, name: str, *, is_copy: bool = False) -> None:
        """Note that a disk is gone, or that an older copy (`is_copy`) has replaced it.

        What it held still counts as acknowledged (`Facts.holders`).
        """
        facts = self.facts.members.get(name)
        for known in self.facts.on_disk.values():
            known.discard(name)
        if facts is not None:
            self.facts.members[name] = MemberFacts(name, boot=facts.boot, is_copy=is_copy)

    def _check_lost(self, facts: MemberFacts, lost: Sequence[EntryRef]) -> None:
        """Compare what a crash took with what was on disk. Nothing may rely on the rest."""
        for ref in lost:
            if facts.name in self.facts.on_disk.get(ref.crc, ()):
                raise Violation(
                    Property.DURABLE_BEFORE_VISIBLE,
                    f"{facts.name}: {ref} was on disk, and is gone after a restart",
                )

    # Looking.

    def look(self, member: Watched) -> None:
        """Compare a member with what was known of it."""
        facts = self.facts.members[member.name]
        group, log = member.group, member.log
        if log.last_index != facts.last or log.last_crc != self._last_crc(facts):
            self.look_log(member, facts)
            if group.role is Role.LEADER:
                for hook in self._stamp:
                    hook(facts, log.last_time_ms)
        if member.view.covered_index(log) != facts.durable:
            self.look_durable(member, facts)
        role, term = group.role, int(group.term)
        if role is not facts.role or term != facts.term:
            if role is Role.LEADER and (facts.role is not Role.LEADER or term != facts.term):
                # A group's first leader changes nothing.
                self.counts["leader changes"] += self._has_led
                self._has_led = True
            if facts.role is Role.QUARANTINED:
                self._trust(facts)
            facts.role = role
            facts.term = term
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
        last, head = int(log.last_index), int(log.first_index)
        # No start adds entries. A log that was trimmed to its end is empty.
        begins_behind = head > facts.last + 1 or head == facts.last + 1 <= last
        if restart and begins_behind and not facts.is_copy:
            self._refilled(facts, head, last)
        same = min(facts.last, last)
        while same >= head and same in facts.log and facts.log[same] != log.ref(LogIndex(same)):
            same -= 1
        removed = [facts.log.pop(i) for i in range(facts.last, same, -1) if i in facts.log]
        if restart:
            lost = [ref for ref in removed if not self._is_superseded(log, ref)]
            if len(lost) < len(removed):  # a refill, and its log begins among the replaced entries
                self._forget_before(facts, head)
            self._check_lost(facts, lost)
            removed = []
        first = max(same + 1, head)
        added = [log.ref(LogIndex(index)) for index in range(first, last + 1)]
        for ref in added:
            facts.log[int(ref.index)] = ref
        facts.last = last
        for ref in removed:
            for known in (self.facts.holders, self.facts.on_disk):
                if ref.crc in known:
                    known[ref.crc].discard(facts.name)
        if removed:
            self.counts["truncated suffixes"] += 1
        if removed or added:
            for hook in self._log:
                hook(facts, removed, added)
        facts.durable = min(facts.durable, same)

    def _refilled(self, facts: MemberFacts, head: int, last: int) -> None:
        """Take a log that begins behind what the member had: only a refill makes one (D18)."""
        self.counts["refills"] += 1
        if last > self.facts.committed_last:
            raise Violation(
                Property.REFILLED,
                f"{facts.name} was refilled up to entry {last}, committed are those up to "
                f"{self.facts.committed_last}",
            )
        self._forget_before(facts, head)
        facts.last = head - 1

    def _forget_before(self, facts: MemberFacts, head: int) -> None:
        """Forget what the member held before its log begins: it may be of another history."""
        for index in [index for index in facts.log if index < head]:
            ref = facts.log.pop(index)
            if self.facts.committed.get(index) != ref:
                for known in (self.facts.holders, self.facts.on_disk):
                    known.get(ref.crc, set()).discard(facts.name)

    def _is_superseded(self, log: CommitLog, ref: EntryRef) -> bool:
        """Tell whether a refill put the committed entry of the same index in place of one."""
        if not log.first_index <= ref.index <= log.last_index:
            return False
        committed = self.facts.committed.get(int(ref.index))
        return committed not in (None, ref) and committed == log.ref(ref.index)

    def look_durable(self, member: Watched, facts: MemberFacts) -> None:
        """Check that a growing durable index covers only entries that are on the disk."""
        durable = member.view.covered_index(member.log)
        found: list[EntryRef] = []
        trusted = member.group.role is not Role.QUARANTINED
        for index in range(facts.durable + 1, durable + 1):
            ref = facts.log.get(index)
            if ref is None:
                continue  # below the head
            if facts.name in self.facts.on_disk.get(ref.crc, ()) or member.view.holds(ref):
                self.facts.on_disk.setdefault(ref.crc, set()).add(facts.name)
                found.append(ref)
                if trusted:
                    self.facts.holders.setdefault(ref.crc, set()).add(facts.name)
        facts.durable = durable
        for hook in self._durable:
            hook(facts, found)

    def _trust(self, facts: MemberFacts) -> None:
        """Count what a member got while it was in quarantine."""
        for ref in facts.log.values():
            if facts.name in self.facts.on_disk.get(ref.crc, ()):
                self.facts.holders.setdefault(ref.crc, set()).add(facts.name)

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

    def sending(self, member: Watched, target: str, message: Message) -> None:
        """Take a message that leaves now."""
        facts = self.facts.members[member.name]
        for hook in self._send:
            hook(facts, target, message)


def _overriding(invariants: Sequence[Invariant], name: str) -> list[Callable[..., None]]:
    """Return the bound hooks of the invariants that override a hook. The others cost nothing."""
    return [
        getattr(invariant, name)
        for invariant in invariants
        if getattr(type(invariant), name) is not getattr(Invariant, name)
    ]
