"""The gate between the core and the wire: durable before visible, and nothing late gets in. Pure.

Owns, outbound: which messages wait for the disk (D4). A vote or a vote request leaves when its term
and vote are on disk. An append acknowledgement also needs the log on disk up to the index that it
names. The gate drops an acknowledgement when the term has moved on: its entry may have been
replaced, and a sync of the replacement must not release it.

Owns, inbound: one session and a growing sequence for each peer. The gate drops late, reordered and
repeated messages. It counts each voter once (F8). It lowers a commit index to what the message
proves (F1). Not owned: checks of answers and resets (`replication/`; F2, F3). The gate decides
nothing about votes or replication.
"""

import enum
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from dledger.raft.wire.messages import AppendAnswer, AppendRequest, Message, VoteAnswer, VoteRequest
from dledger.types import MemberId

HELD_MAX: Final = 1024
"""So many messages wait for one sync. Further acknowledgements merge into that peer's newest."""
RETIRED_SESSIONS_MAX: Final = 16
"""So many earlier processes of a peer are remembered, to keep their late messages out."""


@dataclass(slots=True)
class _Held:
    target: MemberId
    message: Message
    term: int
    hard_version: int
    log_index: int


class OutboundGate:
    """Messages that promise something which is not on disk yet."""

    def __init__(self) -> None:
        self._held: list[_Held] = []

    def __len__(self) -> int:
        return len(self._held)

    def hold(
        self, target: MemberId, message: Message, *, term: int, hard_version: int, log_index: int
    ) -> None:
        """Keep `message` until version and index are covered; drop it when the term changes."""
        held = self._held
        if held and held[-1].term != term:
            # Promises of an earlier term never leave, nor merge into an answer of this term: that
            # leader may have lost what it had sent, and lead again without it.
            held.clear()
        if isinstance(message, AppendAnswer) and held:
            newest = held[-1]
            same = newest.target == target and isinstance(newest.message, AppendAnswer)
            if same and (newest.log_index >= log_index or len(held) >= HELD_MAX):
                log_index = max(log_index, newest.log_index)
                message = _cumulated(held.pop().message, message)
        held.append(_Held(target, message, term, hard_version, log_index))

    def release(
        self, *, term: int, hard_version: int, log_index: int
    ) -> list[tuple[MemberId, Message]]:
        """Return what may leave now, in order; one acknowledgement per peer, the last."""
        if not self._held:
            return []
        free: list[_Held] = []
        kept: list[_Held] = []
        for item in self._held:
            if item.term != term:
                continue
            covered = item.hard_version <= hard_version and item.log_index <= log_index
            (free if covered else kept).append(item)
        self._held = kept
        last: dict[MemberId, _Held] = {}
        for item in free:
            if isinstance(item.message, AppendAnswer):
                if item.target in last:
                    item.message = _cumulated(last[item.target].message, item.message)
                last[item.target] = item
        return [
            (item.target, item.message)
            for item in free
            if last.get(item.target, item) is item or not isinstance(item.message, AppendAnswer)
        ]

    def forget(self, target: MemberId) -> None:
        """Drop what waits for a peer whose link broke or whose data is gone."""
        self._held = [item for item in self._held if item.target != target]

    def clear(self) -> None:
        """Drop everything."""
        self._held.clear()


def _cumulated(earlier: Message, later: AppendAnswer) -> AppendAnswer:
    """Return the later of two answers to one reign; it says what the earlier one acknowledged."""
    assert isinstance(earlier, AppendAnswer), earlier
    assert earlier.term == later.term, f"answers to {earlier.term} and {later.term}"
    if earlier.matched and later.matched and earlier.match_index > later.match_index:
        return replace(later, match_index=earlier.match_index)
    return later


class Arrival(enum.Enum):
    """What becomes of an arriving message."""

    FRESH = "fresh"
    STALE = "late, repeated or out of order"
    UNKNOWN_SESSION = "of a process that has not said hello"


class PeerSession:
    """The sequence of one peer's current process."""

    def __init__(self) -> None:
        self.session = 0
        self._sequence = 0
        self._retired: deque[int] = deque(maxlen=RETIRED_SESSIONS_MAX)

    def admit(self, message: Message) -> Arrival:
        """Tell whether the message is the newest yet of the known process."""
        if message.session != self.session or self.session == 0:
            return Arrival.UNKNOWN_SESSION
        if message.sequence <= self._sequence:
            return Arrival.STALE
        self._sequence = message.sequence
        return Arrival.FRESH

    def is_retired(self, session: int) -> bool:
        """Tell whether a newer process of the peer has been met since."""
        return session in self._retired

    def begin(self, session: int, sequence: int) -> None:
        """Take a process's hello; the process before it is over."""
        assert session != 0, "sessions are never 0"
        assert not self.is_retired(session), f"session {session} is over"
        if self.session not in (0, session):
            self._retired.append(self.session)
        self.session = session
        self._sequence = sequence


def term_on_disk(message: Message) -> int:
    """Return the term that the sender had on disk when the message left; 0 when unknown.

    A follower's answer waits for its term. A leader or candidate has voted for itself in its term.
    """
    match message:
        case AppendAnswer():
            return message.own_term
        case AppendRequest() | VoteRequest():
            return message.term
        case VoteAnswer(granted=True):
            return message.voter_term
        case _:
            return 0


class VoteTally:
    """The voters of one request, each counted once (F8). The asker votes first."""

    def __init__(self, number: int, asker: MemberId, member_count: int) -> None:
        self.number = number
        self._needed = member_count // 2 + 1
        self.granted = {asker}
        self.refused: set[MemberId] = set()

    def add(self, voter: MemberId, *, granted: bool) -> bool:
        """Note an answer; True when it is this voter's first grant."""
        if voter in self.granted:
            return False
        if granted:
            self.refused.discard(voter)
            self.granted.add(voter)
            return True
        self.refused.add(voter)
        return False

    @property
    def won(self) -> bool:
        """A majority granted."""
        return len(self.granted) >= self._needed

    def hopeless(self, reachable: set[MemberId]) -> bool:
        """Tell whether the members that have not answered cannot make a majority any more."""
        return len(self.granted | (reachable - self.refused)) < self._needed


def proven_commit(leader_commit: int, prev_index: int, last_index: int | None) -> int:
    """Return what an append message proves committed on its receiver, once it matched (F1).

    The logs agree up to the message's last entry, or up to prev without entries. The message says
    nothing about what the receiver holds beyond that.
    """
    return min(leader_commit, prev_index if last_index is None else last_index)
