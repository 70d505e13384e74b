"""How far one follower is, as its leader knows, and what is on its way to it. Pure.

Owns: next index, match index, the numbered requests in flight and their bytes. Two states:

  probe       the leader does not know where the logs agree: one request at a time
  replicate   the logs agree up to `match`: requests follow without waiting, up to a bound

  probe --matched--> replicate        replicate --mismatch, link lost, entries refused--> probe

Does not own: which bytes a request holds, or what the core counts (`leader.py`).
"""

import enum
import math
from collections import deque
from typing import NamedTuple

from dledger.types import DiskRoom, MemberId


class Pace(enum.Enum):
    """See the module header."""

    PROBE = "probe"
    REPLICATE = "replicate"


class InFlight(NamedTuple):
    """One request with entries that is not acknowledged."""

    number: int
    last: int
    size: int


class Progress:
    """One follower. Invariants: match < next; inflight_bytes is the sum over `inflight`."""

    __slots__ = (
        "answered", "clock_asked_at", "clock_number", "commit_sent", "disk_hangs", "disk_room",
        "floor", "heard_at", "inflight", "inflight_bytes", "is_below_head", "match", "match_number",
        "member", "next", "number", "pace", "probe_open", "quarantined", "unsynced",
    )  # fmt: skip

    def __init__(self, member: MemberId) -> None:
        self.member = member
        self.number = 0
        """Of the newest request sent; grows for the life of the process."""
        self.answered = 0
        """The newest request that was answered, by match or mismatch."""
        self.heard_at = -math.inf
        """When an answer of this reign came last."""
        self.match = 0
        self.match_number = 0
        """Number of the request whose answer moved `match`. Answers to later ones know of it."""
        self.next = 1
        self.pace = Pace.PROBE
        self.probe_open = False
        """Probe: a request is out and unanswered."""
        self.floor = 0
        """A mismatch of an older request is stale: it asks for entries that were sent (F2)."""
        self.inflight: deque[InFlight] = deque()
        self.inflight_bytes = 0
        self.commit_sent = 0
        self.quarantined = False
        self.is_below_head = False
        """What follows its log was trimmed: replication cannot fill it, it is refilled (D18)."""
        self.disk_room = DiskRoom.ENOUGH
        self.disk_hangs = False
        self.unsynced = False
        """What it acknowledges is written, not synced: its `flush` is async."""
        self.clock_number = 0
        """The request whose round trip bounds the age of a reading of the follower's clock."""
        self.clock_asked_at = -math.inf
        """When that request left; -inf when none is out."""

    def begin_reign(self, last_index: int) -> None:
        """Forget everything, and assume that the follower holds everything up to `last_index`."""
        self.heard_at = -math.inf
        self.match = 0
        self.is_below_head = False
        self.next = last_index + 1
        self.commit_sent = 0
        self.clock_asked_at = -math.inf
        self.disk_room = DiskRoom.ENOUGH
        self.disk_hangs = False
        self._probe()

    def _probe(self) -> None:
        self.pace = Pace.PROBE
        self.probe_open = False
        self.inflight.clear()
        self.inflight_bytes = 0
        self.floor = self.number + 1

    def may_send(self, inflight_bytes_max: int) -> bool:
        """Tell whether a request with entries may leave now."""
        if self.disk_room is DiskRoom.FULL:
            return False  # it throws entries away (I16)
        if self.pace is Pace.PROBE:
            return not self.probe_open
        return self.inflight_bytes < inflight_bytes_max

    def sent(self, last: int | None, size: int) -> int:
        """Note a request, with entries up to `last` or none; return its number."""
        self.number += 1
        if last is not None:
            self.inflight.append(InFlight(self.number, last, size))
            self.inflight_bytes += size
            if self.pace is Pace.REPLICATE:
                self.next = last + 1
        if self.pace is Pace.PROBE:
            self.probe_open = True
        return self.number

    def ask_clock(self, now: float, patience: float) -> None:
        """Time the next request, unless one is out that may still be answered in time."""
        if now - self.clock_asked_at > patience:
            self.clock_number, self.clock_asked_at = self.number + 1, now

    def clock_read_within(self, number: int, now: float, patience: float) -> bool:
        """Tell whether the clock in an answer was certainly read at most `patience` ago."""
        if number < self.clock_number:
            return False
        asked_at, self.clock_asked_at = self.clock_asked_at, -math.inf
        return now - asked_at <= patience

    def matched(self, number: int, match: int) -> bool:
        """Take an acknowledgement; True when it moved the match index."""
        inflight = self.inflight
        while inflight and inflight[0].last <= match:
            self.inflight_bytes -= inflight.popleft().size
        self.is_below_head = False
        moved = match > self.match
        if moved:
            self.match = match
            self.match_number = number
        if self.next <= self.match:
            self.next = self.match + 1
        if self.pace is Pace.PROBE and number >= self.floor:
            # The probe's own entries stay in flight: they are acknowledged once on disk.
            self.pace = Pace.REPLICATE
            self.probe_open = False
            if inflight:
                self.next = max(self.next, inflight[-1].last + 1)
        return moved

    def forgets(self, number: int, hint: int) -> bool:
        """Tell whether a mismatch shows that the follower lost what it acknowledged in this reign.

        Its disk agreed with the leader up to `match`, and only a later term may cut that. So in an
        answer to any later request, its newest entry that may agree is at `match` or behind.
        """
        return hint < self.match and number > self.match_number

    def mismatched(self, number: int, next_index: int) -> bool:
        """Take a mismatch: go back to `next_index`; False when it is stale (F2)."""
        if number < self.floor:
            return False
        self._probe()
        self.next = max(self.match + 1, next_index)
        return True

    def lost(self) -> None:
        """The link broke, or entries were refused: what is in flight must be sent again."""
        self._probe()
        if self.match:  # 0: the leader does not know it yet, so `next` stays
            self.next = self.match + 1

    def retry_probe(self) -> None:
        """A probe went unanswered for a heartbeat: allow another."""
        if self.pace is Pace.PROBE:
            self.probe_open = False
            self.inflight.clear()
            self.inflight_bytes = 0

    def forget_data(self) -> None:
        """The follower came back without its data (D18): forget what it acknowledged."""
        self.match = 0
        self._probe()
