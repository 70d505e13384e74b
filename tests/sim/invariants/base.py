"""What an invariant is: a watcher that hears facts about members after each step.

Owns: the hooks, and `Facts`, what the world knows for certain (every log, every disk, what is
committed). Facts are gathered by `tests.sim.world.observer` from the members' logs and disks, never
from what a member says about itself alone. Each property has a file of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from dledger.raft.api import Role
from dledger.raft.wire.messages import Message
from dledger.types import Entry, EntryRef
from tests.sim.invariants.violation import Property, Violation


@dataclass(slots=True)
class MemberFacts:
    """One member as the world saw it last."""

    name: str
    boot: int = 0
    """Grows with every start of its process."""
    term: int = 0
    role: Role = Role.UNFORMED
    commit: int = 0
    applied: int = 0
    log: dict[int, EntryRef] = field(default_factory=dict)
    """Every entry in its log now, by index."""
    last: int = 0
    durable: int = 0
    is_copy: bool = False
    """Its disk was replaced by an older copy, and its process has not started since."""


@dataclass(slots=True)
class Facts:
    """What the world knows for certain."""

    names: Sequence[str]
    members: dict[str, MemberFacts] = field(default_factory=dict)
    committed: dict[int, EntryRef] = field(default_factory=dict)
    committed_last: int = 0
    committed_by_term: dict[int, int] = field(default_factory=dict)
    """Of each term's leader: the highest index it was seen to commit."""
    holders: dict[int, set[str]] = field(default_factory=dict)
    """By chain CRC of an entry: who has had it on disk, checked there, and has not cut it since.
    What a member gets while it is in quarantine counts only when that has ended (D18).

    The chain CRC of an entry covers its whole history, so it names entry and history at once. A
    wiped disk still counts: the acknowledgement was true when it left, D18 does the rest.
    """

    on_disk: dict[int, set[str]] = field(default_factory=dict)
    """By chain CRC: on whose disk it is now, trusted or not; a wiped disk holds nothing."""

    @property
    def majority(self) -> int:
        """Return how many members are a majority."""
        return len(self.names) // 2 + 1


class Invariant:
    """A watcher. A subclass overrides the hooks it needs; each may raise `Violation`."""

    broken: Property

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def on_start(self, member: MemberFacts, applied: int, digest: bytes) -> None:
        """See a process that has opened its log and state."""

    def on_role(self, member: MemberFacts) -> None:
        """See a member whose role or term changed."""

    def on_log(
        self, member: MemberFacts, removed: Sequence[EntryRef], added: Sequence[EntryRef]
    ) -> None:
        """See a log that changed; `member.log` is already the new one."""

    def on_stamp(self, member: MemberFacts, stamp_ms: int) -> None:
        """See a leader's newest entry, and what it is stamped, as it is made."""

    def on_durable(self, member: MemberFacts, entries: Sequence[EntryRef]) -> None:
        """See entries that were found on a member's disk, past all caches."""

    def on_commit(self, member: MemberFacts, new: Sequence[EntryRef]) -> None:
        """See a commit index grow; `new` holds the entries the world had not seen committed."""

    def on_apply(
        self, member: MemberFacts, entry: Entry, results: Sequence[object], digest: bytes
    ) -> None:
        """See an entry applied."""

    def on_send(self, member: MemberFacts, target: str, message: Message) -> None:
        """See a message the moment it leaves."""

    def fail(self, detail: str) -> NoReturn:
        """Report the property as broken."""
        raise Violation(self.broken, detail)
