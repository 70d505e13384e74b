"""Checkers: pure functions from a history to a judgement, each of one rule.

`judge` runs all of them over one view of the history, so that the logs are read once. C13 (exactly
once) does not exist: the product has no transactions.

    bench     how fast all checkers judge a long history, compared with parsing its file
    cluster/  rules about members, availability and clients
    log/      rules about what clients wrote and read
    shared/   what several checkers use
"""

from typing import Final

from jepsen_tests.checkers.cluster.availability import liveness, recovery_time
from jepsen_tests.checkers.cluster.clients import clients_get_on
from jepsen_tests.checkers.cluster.outcomes import errors, resources
from jepsen_tests.checkers.cluster.replicas import raft_invariants, replica_equality
from jepsen_tests.checkers.log.contents import aborted_read, phantoms
from jepsen_tests.checkers.log.loss import acknowledged_loss, lost_write, unseen
from jepsen_tests.checkers.log.offsets import duplicates, inconsistent_offsets, offset_arithmetic
from jepsen_tests.checkers.log.order import key_order, real_time_order
from jepsen_tests.checkers.log.reads import committed_visibility, polls
from jepsen_tests.checkers.log.registers import linearizable_registers
from jepsen_tests.checkers.shared.judgement import ALWAYS, Checker, Judgement, Valid
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import History
from jepsen_tests.history.history_file import uncollected

__all__ = ["CHECKERS", "CheckerCrashed", "judge"]

SENDS: Final = ("send", "resend")
POLLS: Final = ("poll",)
REGISTERS: Final = ("commit", "reset", "committed", "set", "get")
NEVER: Final[tuple[str, ...]] = ()
"""Whether there is something to look at does not follow from what a run is to do."""
CHECKERS: Final = (
    Checker(
        "C1", "acknowledged loss",
        "every acknowledged or proven value is in the final reads, on every node",
        ("lost", "lost-on-node"), acknowledged_loss, SENDS,
    ),
    Checker(
        "C2", "lost write", "no such value lies where consumers went without any having got it",
        ("lost-write",), lost_write, SENDS,
    ),
    Checker(
        "C3", "unseen", "what was acknowledged has been read when the final phase is over",
        ("unseen",), unseen, SENDS,
    ),
    Checker(
        "C4", "inconsistent offsets", "an offset of a place holds one value over all sources",
        ("inconsistent-offset",), inconsistent_offsets, SENDS,
    ),
    Checker("C5", "duplicates", "a value is at one offset", ("duplicate",), duplicates, SENDS),
    Checker(
        "C6", "aborted read", "no value of a refused send is visible, nor of a fenced producer",
        ("aborted-read", "fenced-write"), aborted_read, SENDS,
    ),
    Checker(
        "C7", "phantom, corruption", "what is read was sent, to that place, byte by byte",
        ("phantom", "misplaced", "corrupt"), phantoms, POLLS,
    ),
    Checker(
        "C8", "offset arithmetic",
        "a process's offsets grow, replies name the true offset, batches and log have no holes",
        ("nonmonotonic-send", "wrong-reply", "split-batch", "gap"), offset_arithmetic, SENDS,
    ),
    Checker(
        "C9", "real-time order", "what was stored before a send began stands before what it sent",
        ("real-time",), real_time_order, SENDS,
    ),
    Checker(
        "C10", "polls", "a reader continues where it stood, and neither skips nor goes back",
        ("poll-skip", "nonmonotonic-poll", "int-poll-skip", "int-nonmonotonic-poll"), polls, POLLS,
    ),
    Checker(
        "C11", "committed visibility",
        "what was read once stays; bounds are true; nothing is trimmed that was not asked for",
        ("un-read", "bounds-back", "stale-bounds", "high-bounds", "over-trimmed"),
        committed_visibility, POLLS,
    ),
    Checker(
        "C12", "key order", "values of an ordering key are in one place, read as they were sent",
        ("key-moved", "key-order"), key_order, NEVER,
    ),
    Checker(
        "C14", "linearizable registers", "offset commits and registers behave as one copy of each",
        ("not-linearizable",), linearizable_registers, REGISTERS,
    ),
    Checker(
        "C15", "replica equality", "members hold identical applied entries and state",
        ("different-entry", "different-digest", "missing-entry"), replica_equality,
    ),
    Checker(
        "C16", "Raft invariants", "one leader in a term; term, commit, applied never go back",
        ("two-leaders", "other-leader", "unnamed-leader", "index-order", "term-back", "first-back",
         "commit-back", "applied-back", "stood-still"),
        raft_invariants,
    ),
    Checker(
        "C17", "recovery time",
        "after a fault, or several before that, writes work again within their budgets",
        ("too-slow",), recovery_time, NEVER,
    ),
    Checker(
        "C18", "liveness after heal", "in the end every place takes writes and all members agree",
        ("not-live", "not-converged", "died"), liveness,
    ),
    Checker(
        "C19", "errors", "every error is a known one, and enough operations succeeded",
        ("unexpected-error",), errors,
    ),
    Checker(
        "C20", "resources", "members' memory, files and threads return to their baseline",
        ("not-returned",), resources, NEVER,
    ),
    Checker(
        "C21", "clients get on",
        "every call ends, every client that goes on trying succeeds, every place is open again",
        ("hung", "starved", "shut-out"), clients_get_on,
    ),
)  # fmt: skip


class CheckerCrashed(Exception):
    """A checker raised: the harness failed, and nothing is known of the history."""


@uncollected()
def judge(history: History) -> list[Judgement]:
    """Run every checker; CheckerCrashed names the one that raised."""
    view = View(history)
    judgements: list[Judgement] = []
    for checker in CHECKERS:
        try:
            judgements.append(_checked(checker, view))
        except Exception as error:
            crash = f"{checker.number} {checker.name}: {type(error).__name__}: {error}"
            raise CheckerCrashed(crash) from error
    return judgements


def _checked(checker: Checker, view: View) -> Judgement:
    """Run a checker; one that had nothing to look at knows nothing."""
    judgement = checker.check(view)
    if not judgement.facts["looked_at"] and judgement.valid is Valid.YES:
        judgement.unknown("there was nothing to look at")
    if not judgement.facts["looked_at"]:
        judgement.is_asked &= bool({ALWAYS, *view.functions} & set(checker.asked_by))
    return judgement
