"""The quarantine around PySyncObj 0.3.17: the only import of it, and of its private names.

Owns: the check that the library on disk is the audited one, the clock it reads, `Engine` with a
typed call for each thing the library decides. Elections, vote rules, log matching on a follower,
the commit rule and TimeoutNow are the library's. Everything else of it is off: dumps and compaction
(F1, F4-F6), membership change (F7), code versions (F9), forwarding (F12, L7), chunked entries (L6),
batch clocking (L8), its own replication (L4, L11), apply (F17, L13), sockets and pickle (F18, L18).

Time: the library reads a module-level function. It is replaced by one that returns the time given
to the call that is being made into an engine, so that any number of groups, on real or virtual
clocks, live in one process; outside such a call it is the library's own clock. Chance: the library
draws election timeouts; ours are drawn in `leadership/election.py`, so its deadline is always
infinity, but for the instant in which `campaign` makes it fire.
"""

import hashlib
import importlib.metadata
import importlib.util
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dledger.raft.api import Role
from dledger.raft.engine.journal import Journal, Run, RunList
from dledger.types import MemberId

PYSYNCOBJ_VERSION: Final = "0.3.17"
SOURCE_SHA256: Final = {
    "config.py": "fbbc7ff9f18e4d15a7fd563376e42f5bd192956879d4b810b056d5248b955698",
    "dns_resolver.py": "4b88da2b45e20fbb299fb7a21f2595369b6314700b687fb8858891999bce14e0",
    "fast_queue.py": "8477fe5fdf36d9766df933310d3d66ee953d1afc195b1e6482b3a1498fc517bd",
    "journal.py": "9cf1eaf6acc704581a4cf7d3de330a404403913107adc91c929778b7e3f35edf",
    "monotonic.py": "d116df70e1f81bcab1fb89191fe2fe18486bc25187401d73fd6101cfe686e0a3",
    "node.py": "e4a3f027cd8291f558334bb9c977e952f6b6989e7e1fa1588d3005ef0b990e2c",
    "poller.py": "f69ac749fb410670282fd9520c5805ffc684c8a5f762a927127753d9be8551e6",
    "serializer.py": "4d39fde2f15000ad8f507ec229ebd4f6a86371b6f84d4dc1439a9cccd52857ee",
    "syncobj.py": "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4",
    "transport.py": "0c9d89f9c4781ec9772df8011d7975a1a4a1a5f541357e12eae85a813e92b50b",
    "version.py": "0b8426a8b52ecf874193897d26c4214acbd85335145ea9ff17e27a22b1132943",
}
"""The files that run here; what they import beside these is never called."""


class WrongLibrary(ImportError):
    """The PySyncObj found is not the one that was audited."""


def check_source(folder: Path, version: str, expected: Mapping[str, str] = SOURCE_SHA256) -> None:
    """Compare version and files with the audited ones; WrongLibrary names what differs."""
    if version != PYSYNCOBJ_VERSION:
        raise WrongLibrary(f"pysyncobj is {version}, audited is {PYSYNCOBJ_VERSION} only")
    for name, digest in expected.items():
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if found != digest:
            raise WrongLibrary(
                f"{folder / name} has SHA-256 {found}, the audited {PYSYNCOBJ_VERSION} has {digest}"
            )


def _folder() -> Path:
    spec = importlib.util.find_spec("pysyncobj")
    if spec is None or spec.origin is None:
        raise WrongLibrary(f"pysyncobj {PYSYNCOBJ_VERSION} is not installed")
    return Path(spec.origin).parent


check_source(_folder(), importlib.metadata.version("pysyncobj"))

from pysyncobj import syncobj as library  # noqa: E402 - only after the check
from pysyncobj.config import SyncObjConf  # noqa: E402
from pysyncobj.node import Node  # noqa: E402
from pysyncobj.transport import Transport  # noqa: E402


class _CallTime(threading.local):
    now: float | None = None


_call_time = _CallTime()
_own_monotonic = library.monotonicTime


def _monotonic() -> float:
    now = _call_time.now
    return _own_monotonic() if now is None else now


library.monotonicTime = _monotonic

_FOLLOWER: Final = 0
_ROLES: Final = (Role.FOLLOWER, Role.CANDIDATE, Role.LEADER)
_NEVER_APPLIED: Final = 0


class _Peer(Node):
    """A member. The hash is its place, so that the library's sets iterate alike in every run."""

    def __init__(self, member: str, place: int) -> None:
        super().__init__(member)
        self._place = place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Peer) and self._place == other._place

    def __hash__(self) -> int:
        return self._place


class _NoPoller:
    """The library polls sockets at the end of a tick; there are none."""

    def poll(self, timeout: float) -> None:
        """Return at once."""


class _Wire(Transport):
    """Collects what the library sends while it is being called."""

    def __init__(self) -> None:
        super().__init__(None, None, ())
        self.sent: list[tuple[str, Mapping[str, object]]] = []

    @property
    def ready(self) -> bool:
        return True

    def send(self, node: Node, message: Mapping[str, object]) -> bool:
        self.sent.append((node.id, message))
        return True


def _returning(journal: Journal) -> Callable[[str | None], object]:
    return lambda _name: journal


class _Call:
    """A call into the library: its time, and what it sends. Calls do not nest within one engine."""

    __slots__ = ("_before", "_wire", "now")

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire
        self._before: float | None = None
        self.now = 0.0

    def __enter__(self) -> list[tuple[str, Mapping[str, object]]]:
        sent = self._wire.sent = []
        self._before = _call_time.now
        _call_time.now = self.now
        return sent

    def __exit__(self, *_error: object) -> None:
        _call_time.now = self._before


class AppendResult(NamedTuple):
    """The library's answer to an append message."""

    matched: bool
    next_index: int
    """With `matched`: one past the last index that surely agrees with the sender's log."""


class Engine(library.SyncObj):
    """One member's Raft core. Every call takes `now`, in seconds of the group's monotonic clock.

    What the library would send is the return value of the call that made it. Nothing here is
    durable: the caller holds back what must wait for the disk.
    """

    def __init__(
        self,
        member: MemberId,
        members: Sequence[MemberId],
        journal: Journal,
        *,
        fallback_timeout: float,
        covered_index: Callable[[], int],
        now: float,
    ) -> None:
        self._journal = journal
        self._covered_index = covered_index
        self._wire = _Wire()
        self._call = _Call(self._wire)
        self._peers = {name: _Peer(name, place) for place, name in enumerate(sorted(members))}
        configuration = SyncObjConf(
            autoTick=False,
            dynamicMembershipChange=False,
            appendEntriesUseBatch=True,
            appendEntriesPeriod=fallback_timeout / 8,
            raftMinTimeout=fallback_timeout / 2,
            raftMaxTimeout=fallback_timeout,
            leaderFallbackTimeout=fallback_timeout,
            connectionTimeout=fallback_timeout * 4,
            pollerType="select",
        )
        others = [peer for name, peer in self._peers.items() if name != member]
        create_journal = library.createJournal
        library.createJournal = _returning(journal)
        try:
            with self._at(now):
                super().__init__(self._peers[member], others, configuration, transport=self._wire)
        finally:
            library.createJournal = create_journal
        self._poller = _NoPoller()
        # The library applies nothing here. The number only feeds a warning about truncation, which
        # in our journal is either harmless or stops the member; so it must never fire.
        self._SyncObj__raftLastApplied = _NEVER_APPLIED
        for peer in others:
            self._SyncObj__onNodeConnected(peer)

    def _at(self, now: float) -> "_Call":
        """Make `now` the library's time, and collect what it sends."""
        self._call.now = now
        return self._call

    # State.

    @property
    def role(self) -> Role:
        """FOLLOWER, CANDIDATE or LEADER."""
        return _ROLES[self._SyncObj__raftState]

    @property
    def is_leader(self) -> bool:
        """Tell whether the core leads its term."""
        return self._SyncObj__raftState == 2

    @property
    def term(self) -> int:
        """The current term."""
        return self._SyncObj__raftCurrentTerm

    @property
    def leader(self) -> MemberId | None:
        """Whom the core takes for the leader of its term."""
        leader = self._SyncObj__raftLeader
        return None if leader is None else MemberId(leader.id)

    @property
    def commit_index(self) -> int:
        """The highest index known to be committed."""
        return self._SyncObj__raftCommitIndex

    @property
    def signature(self) -> tuple[int, int, object]:
        """Return a value that differs whenever role, term or leader do; cheap."""
        return (
            self._SyncObj__raftState,
            self._SyncObj__raftCurrentTerm,
            self._SyncObj__raftLeader,
        )

    # Elections.

    def campaign(self, now: float) -> bool:
        """Begin a new term as candidate; False when the core leads. A group of one leads at once.

        The caller asks the others for their votes: (term, last index, last term) of this member.
        """
        if self.is_leader:
            return False
        with self._at(now):
            self._SyncObj__raftElectionDeadline = -math.inf
            self._onTick(0.0)
        return True

    def vote_request(
        self, sender: MemberId, term: int, last_index: int, last_term: int, now: float
    ) -> bool:
        """Take a request for a vote; True when the vote is given now."""
        with self._at(now) as sent:
            self._receive(
                sender,
                {
                    "type": "request_vote",
                    "term": term,
                    "last_log_index": last_index,
                    "last_log_term": last_term,
                },
            )
        return any(message["type"] == "response_vote" for _, message in sent)

    def vote_granted(self, voter: MemberId, term: int, now: float) -> None:
        """Count a vote. The caller lets each voter through once in a term (F8)."""
        with self._at(now):
            self._receive(voter, {"type": "response_vote", "term": term})

    def adopt_term(self, sender: MemberId, term: int, now: float) -> None:
        """Follow in a higher term that was heard of in an answer (L9): a vote it cannot grant."""
        if term > self.term:
            self.vote_request(sender, term, 0, -1, now)

    def timeout_now(self, sender: MemberId, term: int, now: float) -> bool:
        """Take the order to campaign at once; True when it comes from the current leader."""
        with self._at(now):
            self._receive(sender, {"type": "timeout_now", "term": term})
        return self._SyncObj__raftElectionDeadline == 0

    def forget_leader(self) -> None:
        """Stop taking anybody for the leader, until the next append message (D17)."""
        if not self.is_leader:
            self._SyncObj__raftLeader = None

    def step_down(self) -> None:
        """Follow in the same term."""
        self._SyncObj__setState(_FOLLOWER)
        self._SyncObj__raftLeader = None

    def spend_vote(self, term: int, member: MemberId) -> None:
        """Make `term` the own term with its vote given to this member itself (D18 b)."""
        assert term >= self.term, f"term {term} is below {self.term}"
        self.step_down()
        self._SyncObj__setCurrentTerm(term, member)

    # Replication.

    def append(
        self,
        sender: MemberId,
        *,
        term: int,
        prev_index: int,
        prev_term: int,
        run: Run | None,
        commit_index: int,
        now: float,
    ) -> AppendResult:
        """Take an append message of a leader of at least the current term.

        `commit_index` is already clamped to what the message proves (F1).
        """
        assert term >= self.term, f"append of term {term} in term {self.term}"
        with self._at(now) as sent:
            self._receive(
                sender,
                {
                    "type": "append_entries",
                    "term": term,
                    "prevLogIdx": prev_index,
                    "prevLogTerm": prev_term,
                    "entries": () if run is None else RunList(run),
                    "commit_index": commit_index,
                },
            )
        answer = sent[-1][1]
        next_index = answer["next_node_idx"]
        assert isinstance(next_index, int)
        return AppendResult(bool(answer["success"]), next_index)

    def heard(self, sender: MemberId, match_index: int | None, now: float) -> None:
        """Take a follower's answer of this reign: a sign of life, and how far it agrees."""
        next_index = self.commit_index + 1 if match_index is None else match_index + 1
        with self._at(now):
            self._receive(
                sender,
                {
                    "type": "next_node_idx",
                    "reset": False,
                    "success": match_index is not None,
                    "next_node_idx": next_index,
                },
            )

    def zero_match(self, member: MemberId) -> None:
        """Count nothing for a member any more: it came back without its data (D18 a)."""
        if self.is_leader:
            self._SyncObj__raftMatchIndex[self._peers[member]] = 0

    def excuse_silence(self, now: float) -> None:
        """Start check-quorum anew, after a pause of this process (L2)."""
        responses = self._SyncObj__lastResponseTime
        for peer in responses:
            responses[peer] = now

    def tick(self, now: float) -> None:
        """Let a leader advance its commit index, and step down when it hears no majority (L3)."""
        if self.is_leader:
            with self._at(now):
                self._onTick(0.0)

    def order_campaign(self, target: MemberId, now: float) -> bool:
        """Ask the library for a TimeoutNow to `target`; False when its log is not complete."""
        with self._at(now) as sent:
            self.transferLeadership(self._peers[target], lambda _result, _error: None)
        return any(message["type"] == "timeout_now" for _, message in sent)

    # The library's own parts that are off, or that we do otherwise.

    def _receive(self, sender: MemberId, message: Mapping[str, object]) -> None:
        self._SyncObj__onMessageReceived(self._peers[sender], message)

    def _SyncObj__getEntries(  # noqa: N802 - the library's name
        self, first: int, count: int | None = None, size: int | None = None
    ) -> Sequence[tuple[bytes, int, int]]:
        """Hide entries that are not on this member's own disk from the commit rule (F13).

        Only the commit rule asks for exactly one entry. An empty answer makes it skip the index,
        so a leader, or a group of one, never counts itself before its own sync.
        """
        if count == 1 and first > self._covered_index():
            return ()
        return super()._SyncObj__getEntries(first, count, size)

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        return math.inf

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        return False

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        pass

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        pass

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        pass
