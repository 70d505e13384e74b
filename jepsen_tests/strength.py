"""Proof of strength: the known bugs that are put into the members, and what should show each.

Owns the closed list: a bug of `tests/mutants`, the workload and the faults that should show it. A
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
    seconds: int = 25
    hidden: str = ""
    """Why a black box need not find it; the simulation does, by the script or seed that
    `tests/mutants/caught.json` names."""


TRIALS: Final = (
    Trial("ack-before-fsync", "log", "power-cut-before-sync"),
    Trial("entries-not-synced", "log", "power-cut-before-sync"),
    Trial("failed-sync-ignored", "log", "power-cut-before-sync"),
    Trial("ack-before-quorum", "log", "isolate-leader,kill-leader"),
    Trial("unconditional-truncation", "log", "flap,isolate-leader,delay", 60),
    Trial(
        "no-commit-clamp",
        "log",
        "flap,isolate-leader,delay",
        60,
        "one message must carry a commit index above what it proves, and a new leader differ there",
    ),
    Trial(
        "stale-acknowledgement",
        "log",
        "heal-at-timeout,flap,slow-sync",
        60,
        "an answer must outlive the connection and the reign that it belongs to",
    ),
    Trial(
        "acknowledged-more-than-stored",
        "log",
        "isolate,kill,slow-sync",
        40,
        "a follower must lose its connection and its leader between two messages",
    ),
    Trial("apply-before-commit", "log", "isolate-leader,kill-while-cut", 40),
    Trial("leader-counts-itself-before-sync", "log", "power-cut-before-sync", 60),
    Trial("stale-leader-read", "offsets", "isolate-leader,pause-leaders", 40),
    Trial(
        "read-before-own-entry",
        "offsets",
        "kill-leader,isolate-leader",
        40,
        "a commit, its leader's death and a read must fall into some milliseconds",
    ),
    Trial("dedup-off", "retry", "kill-leader"),
    Trial("dedup-lost-at-restart", "retry", "restart,kill-all", 40),
    Trial("repeat-without-its-offset", "retry", "kill-leader"),
    Trial("stale-epoch-writes", "fifo", "transfer"),
    Trial("lives-are-one", "fifo", "transfer", 60),
    Trial("offsets-reused-after-restart", "log", "restart,kill-all", 40),
    Trial("offset-commit-lost", "offsets", "kill-leader"),
    Trial("offset-goes-back", "offsets", "kill-leader"),
    Trial("unknown-told-as-failed", "log", "pause-leaders", 40),
    Trial("append-forgets-the-frozen-rows", "log", "kill", 20),
    Trial("incomplete-candidate-elected", "log", "isolate,kill-leader,flap", 60),
    Trial(
        "proposals-never-settled",
        "log",
        "isolate-leader,kill-while-cut",
        40,
        "clients give up waiting by themselves, with the same outcome",
    ),
    Trial("refill-sends-unchecked-bytes", "log", "bit-flips,kill", 60),
    Trial("no-quarantine", "log", "next-quorum-wiped", 40),
    Trial("quarantine-ends-with-a-majority", "log", "next-quorum-wiped", 40),
    Trial("double-vote", "log", "heal-at-timeout,pause-leaders,kill-leader", 60),
    Trial("vote-forgotten-at-restart", "log", "crash-loop,kill-all", 60),
    Trial("trim-above-the-slowest", "retention", "pause,isolate", 60),
)
