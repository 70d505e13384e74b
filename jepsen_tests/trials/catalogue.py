"""Proof of strength: the known bugs that are put into the members, and what should show each.

Owns the closed list: a bug of `tests/mutants`, the workload and the faults that should show the
bug, and the anomalies that the bug may cause. Another anomaly does not count as a catch. A bug that
a black box may miss says why. `runner` runs the list, `report` makes the table.
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
    """Anomalies, as the checkers name them. At least one of them must be found."""
    seconds: int = 25
    hidden: str = ""
    """Why a black box may miss the bug. The simulation catches it by the script or seed that
    `tests/mutants/caught.json` names."""


LOST: Final = ("lost", "lost-on-node", "lost-write", "unseen", "un-read")
"""Something that was acknowledged or read is gone."""
REPLACED: Final = (
    *LOST, "inconsistent-offset", "wrong-reply", "real-time", "bounds-back", "stale-bounds",
    "different-entry", "different-digest", "missing-entry",
)  # fmt: skip
"""Something else stands in its place, or only some members have it."""
REELECTED: Final = (*REPLACED, "two-leaders", "other-leader")
"""Two members lead in one term, with the consequences."""
ENDED: Final = ("died", "not-converged")
"""A member ends because the bug asks it to cut off committed entries (I7)."""
SHUT: Final = ("not-live", "shut-out")
"""Members with data refuse a member that forgot its data: the group never gets a leader again."""
ABSENT: Final = ("lost", "lost-write", "unseen", "un-read", "gap")
"""Anomalies about something that is missing."""
SKIPPED: Final = ("unfinished", "undelivered", "stuck")
"""A group is told to have finished with what nobody finished."""
RETRIED: Final = ("retried-twice", "wrong-attempts", "died-twice")
HELD: Final = ("two-holders", "at-once", "out-of-order", "delivered-again")
"""Two consumers act on one queue."""
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
        "the bug shows only when one message carries a commit index above what it proves and a "
        "new leader has other entries there",
    ),
    Trial(
        "stale-acknowledgement",
        "log",
        "heal-at-timeout,flap,slow-sync",
        REPLACED,
        60,
        "the bug shows only when an answer outlives its connection and the reign it belongs to",
    ),
    Trial(
        "acknowledged-more-than-stored",
        "log",
        "isolate,kill,slow-sync",
        REPLACED,
        40,
        "the bug shows only when a follower loses its connection and its leader between two "
        "messages",
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
        "the leader answers after apply, which waits for its disk. The bug shows only in a read"
        " at the one follower that has the entry, before both members are gone",
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
        "the bug shows only when a commit, its leader's death and a read fall into the same "
        "milliseconds",
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
        "a producer with a successor is also out of sequence. Only a producer that never wrote "
        "to the queue gets by",
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
        "a member gives the wrong answer two seconds after it lost the others. By then the "
        "client has repeated the send elsewhere, with its sequence, and knows the outcome",
    ),
    Trial("append-forgets-the-frozen-rows", "log", "kill", (*REPLACED, "gap"), 20),
    Trial("incomplete-candidate-elected", "log", "late-first", (*REPLACED, *ENDED), 60),
    Trial(
        "proposals-never-settled",
        "log",
        "isolate-leader,kill-while-cut",
        ("too-slow", "not-live"),
        40,
        "clients stop waiting by themselves, with the same outcome",
    ),
    Trial(
        "refill-sends-unchecked-bytes",
        "log",
        "bit-flips,kill",
        (*REPLACED, "corrupt", "not-converged"),
        60,
        "the receiver checks the bytes, too, so the damage stays with the leader",
    ),
    Trial("no-quarantine", "log", "next-quorum-wiped", (*REPLACED, *SHUT), 40),
    Trial(
        "quarantine-ends-with-a-majority",
        "log",
        "next-quorum-wiped",
        REPLACED,
        40,
        "a leader confirms with two others that its log is whole. The bug shows only when the "
        "one of them that has not heard of the new life leads next and counts an answer of the "
        "old life",
    ),
    Trial(
        "double-vote",
        "log",
        "split-vote,slow-sync",
        REELECTED,
        60,
        "two members must ask within the milliseconds in which neither has heard of the other",
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
        "the head goes by whole segments, and a late member is back before one is full",
    ),
    Trial("trim-passes-holds", "holds", "clock", ("hold-passed", "held-unreadable")),
    Trial("hold-never-ends", "holds", "kill-leader", ("held-by-nobody",), 40),
    Trial("by-time-after-not-at", "times", "clock", ("passed-over", "time-back")),
    Trial("delayed-batch-delivered-at-once", "delays", "kill-leader", ("fired-early",)),
    Trial("timer-fires-twice", "delays", "kill-leader", ("duplicate",)),
    Trial(
        "new-timer-overlooked",
        "delays",
        "kill-leader",
        ("not-fired", "duplicate", "different-digest", "inconsistent-offset"),
    ),
    Trial(
        "delayed-batch-not-sequenced",
        "delays",
        "kill-leader,leader-unheard",
        ("duplicate",),
        40,
        "the answer to a delayed send must be lost, so that the client repeats the send",
    ),
    Trial(
        "recall-of-a-fired-timer",
        "delays",
        "kill-leader",
        ("fired-after-recall", "died", "different-digest"),
        40,
    ),
    Trial("consumer-commit-skips-an-unfinished-record", "consume", "kill-leader", SKIPPED),
    Trial(
        "consumer-goes-on-after-a-failure",
        "consume",
        "kill-leader",
        ("out-of-order", *SKIPPED),
        hidden="the consumer hands out the same record again at once, and the failure counts once",
    ),
    Trial(
        "consumer-calls-back-twice-at-once",
        "consume",
        "kill-leader",
        ("at-once", "out-of-order"),
        hidden="a consumer must claim its queue again while its listener has a record",
    ),
    Trial(
        "consumer-gives-back-what-the-listener-has",
        "consume",
        "kill-leader",
        ("at-once", "two-holders", "out-of-order", "delivered-again"),
        hidden="the next consumer of an ordered queue waits for its lease, which ends later",
    ),
    Trial("lost-at-the-last-try", "consume", "kill-leader", ("undelivered",)),
    Trial("attempts-begin-anew", "consume", "kill-leader", ("retried-twice", "wrong-attempts")),
    Trial("dead-letter-sent-twice", "consume", "kill-leader", ("resent-twice",)),
    Trial(
        "dead-record-comes-back",
        "consume",
        "isolate,kill-leader",
        ("delivered-again", "wrong-attempts"),
        40,
        "the answer to a last failure must be lost, so that the consumer tells the failure again",
    ),
    Trial(
        "failure-counts-twice",
        "consume",
        "isolate,kill-leader",
        ("retried-twice", "died-twice", "wrong-attempts"),
        40,
        "the answer to a failure must be lost, so that the consumer tells the failure again",
    ),
    Trial("retry-and-not-done", "consume", "kill-leader", ("delivered-again", *RETRIED)),
    Trial(
        "late-commit-undoes",
        "consume",
        "kill-leader",
        ("delivered-again", "stuck"),
        hidden="a commit must come late, after a higher one of the same claim",
    ),
    Trial(
        "granted-before-it-came-back",
        "consume",
        "kill-leader",
        HELD,
        hidden="in ordered groups the lease keeps the next consumer out, too",
    ),
    Trial(
        "old-owner-commits",
        "consume",
        "kill-leader",
        (*HELD, *SKIPPED),
        40,
        "a consumer that lost its queue hears of that before it commits again",
    ),
    Trial(
        "lease-of-one-is-taken",
        "consume",
        "clients-cut,kill-leader",
        HELD,
        40,
        "the coordinator grants a queue only when its holder gave it back or is gone",
    ),
)
