"""Proof of strength: the known bugs that are put into the members, and what should show each.

Owns the closed list: a bug of `tests/mutants`, the workload and the faults that should show it, and
the anomalies that may be its doing: another one, beside it or alone, does not count as its catch. A
bug that no black box can be expected to show says why; the simulation's script or seed that does
is in `tests/mutants/caught.json`. Running them: `trials`; the table: `strength_report`.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Trial:
    """One bug, and what should show it."""

    mutant: str
    workload: str
    faults: str
    shows: tuple[str, ...]
    """Classes of anomalies, as the checkers name them, of which one at least must be found."""
    seconds: int = 25
    hidden: str = ""
    """Why a black box need not find it; the simulation does, by the script or seed that
    `tests/mutants/caught.json` names."""


LOST: Final = ("lost", "lost-on-node", "lost-write", "unseen", "un-read")
"""What was acknowledged or read is gone."""
REPLACED: Final = (
    *LOST, "inconsistent-offset", "wrong-reply", "real-time", "bounds-back", "stale-bounds",
    "different-entry", "different-digest", "missing-entry",
)  # fmt: skip
"""Something else stands in its place, or only some members have it."""
REELECTED: Final = (*REPLACED, "two-leaders", "other-leader")
"""Two lead in one term, with what comes of it."""
ENDED: Final = ("died", "not-converged")
"""A member ends rather than do what the bug asks of it (I7: what is committed is never cut off)."""
SHUT: Final = ("not-live", "shut-out")
"""Whoever has data refuses a member that forgot its own: the group never gets a leader again."""
ABSENT: Final = ("lost", "lost-write", "unseen", "un-read", "gap")
"""Anomalies that name what is missing, not the read which should have had it."""
TRIALS: Final = (
    Trial("ack-before-fsync", "log", "power-cut-before-sync", REPLACED, 60),
    Trial("entries-not-synced", "log", "power-cut-before-sync", REPLACED, 60),
    Trial("failed-sync-ignored", "log", "power-cut-before-sync", REPLACED, 60),
    Trial("ack-before-quorum", "log", "isolate-leader,kill-leader", REPLACED),
    Trial("unconditional-truncation", "log", "flap,isolate-leader,delay", (*REPLACED, *ENDED), 60),
    Trial(
        "no-commit-clamp",
        "log",
        "flap,isolate-leader,delay",
        REPLACED,
        60,
        "one message must carry a commit index above what it proves, and a new leader differ there",
    ),
    Trial(
        "stale-acknowledgement",
        "log",
        "heal-at-timeout,flap,slow-sync",
        REPLACED,
        60,
        "an answer must outlive the connection and the reign that it belongs to",
    ),
    Trial(
        "acknowledged-more-than-stored",
        "log",
        "isolate,kill,slow-sync",
        REPLACED,
        40,
        "a follower must lose its connection and its leader between two messages",
    ),
    Trial(
        "apply-before-commit",
        "log",
        "isolate-leader,kill-while-cut",
        (*REPLACED, "aborted-read", "index-order"),
        40,
    ),
    Trial(
        "leader-counts-itself-before-sync",
        "log",
        "power-cut-before-sync",
        REPLACED,
        60,
        "it answers when it has applied, which waits for its disk: all that could be seen is a "
        "read at the one follower that has the entry, before both are gone",
    ),
    Trial(
        "stale-leader-read", "offsets", "isolate-leader,pause-leaders", ("not-linearizable",), 40
    ),
    Trial(
        "read-before-own-entry",
        "offsets",
        "kill-leader,isolate-leader",
        ("not-linearizable",),
        40,
        "a commit, its leader's death and a read must fall into some milliseconds",
    ),
    Trial("dedup-off", "retry", "kill-leader", ("duplicate",)),
    Trial("dedup-lost-at-restart", "retry", "restart,kill-all", ("duplicate",), 40),
    Trial("repeat-without-its-offset", "retry", "kill-leader", ("unexpected-error",)),
    Trial(
        "stale-epoch-writes",
        "fifo",
        "transfer",
        ("fenced-write",),
        25,
        "who has a successor is out of sequence, too: only who never wrote to the queue gets by",
    ),
    Trial("lives-are-one", "fifo", "transfer", ("fenced-write",), 60),
    Trial(
        "offsets-reused-after-restart",
        "log",
        "restart,kill-all",
        (*REPLACED, "nonmonotonic-send", "duplicate"),
        40,
    ),
    Trial("offset-commit-lost", "offsets", "kill-leader", ("not-linearizable",)),
    Trial("offset-goes-back", "offsets", "kill-leader", ("not-linearizable",)),
    Trial(
        "unknown-told-as-failed",
        "log",
        "cut-while-slow-itself",
        ("aborted-read",),
        60,
        "a member tells it two seconds after it lost the others: who asked has repeated it "
        "elsewhere by then, with its sequence, and knows",
    ),
    Trial("append-forgets-the-frozen-rows", "log", "kill", (*REPLACED, "gap"), 20),
    Trial("incomplete-candidate-elected", "log", "late-first", (*REPLACED, *ENDED), 60),
    Trial(
        "proposals-never-settled",
        "log",
        "isolate-leader,kill-while-cut",
        ("too-slow", "not-live"),
        40,
        "clients give up waiting by themselves, with the same outcome",
    ),
    Trial(
        "refill-sends-unchecked-bytes",
        "log",
        "bit-flips,kill",
        (*REPLACED, "corrupt", "not-converged"),
        60,
        "whoever is sent them checks them, too: the damage only stays with the leader",
    ),
    Trial("no-quarantine", "log", "next-quorum-wiped", (*REPLACED, *SHUT), 40),
    Trial(
        "quarantine-ends-with-a-majority",
        "log",
        "next-quorum-wiped",
        REPLACED,
        40,
        "a leader confirms by two others that its log is whole: the one of them that has not heard "
        "of the new life must lead next, and count an answer of the old one",
    ),
    Trial(
        "double-vote",
        "log",
        "split-vote,slow-sync",
        REELECTED,
        60,
        "two must ask within the milliseconds in which neither has heard of the other",
    ),
    Trial(
        "vote-forgotten-at-restart",
        "log",
        "crash-loop,kill-all",
        REELECTED,
        60,
        "a member must vote, die, start and be asked again within one election",
    ),
    Trial(
        "trim-above-the-slowest",
        "retention",
        "pause,isolate",
        (*REPLACED, "not-converged"),
        60,
        "a head goes by whole segments, and a late member is back before one is full",
    ),
)
