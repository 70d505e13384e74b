"""Checkers: pure functions from a history to a judgement, each of one rule.

`judge` runs all of them over one view of the history, so that the logs are read once. C13 (exactly
once) does not exist: the product has no transactions.

    bench      how fast all checkers judge a long history, compared with parsing its file
    cluster/   rules about members, availability and clients
    delivery/  rules about consumer groups and delayed messages
    log/       rules about what clients wrote and read
    shared/    what several checkers use
"""

from typing import Final

from jepsen_tests.checkers.cluster.availability import liveness, recovery_time
from jepsen_tests.checkers.cluster.clients import clients_get_on
from jepsen_tests.checkers.cluster.outcomes import errors, resources
from jepsen_tests.checkers.cluster.replicas import raft_invariants, replica_equality
from jepsen_tests.checkers.cluster.topics import same_topics
from jepsen_tests.checkers.delivery.attempts import attempts
from jepsen_tests.checkers.delivery.delays import delays
from jepsen_tests.checkers.delivery.delivered import delivered
from jepsen_tests.checkers.delivery.order import delivery_order
from jepsen_tests.checkers.log.contents import aborted_read, phantoms
from jepsen_tests.checkers.log.exports import exports
from jepsen_tests.checkers.log.holds import holds
from jepsen_tests.checkers.log.lookups import lookups
from jepsen_tests.checkers.log.loss import acknowledged_loss, lost_write, unseen
from jepsen_tests.checkers.log.offsets import duplicates, inconsistent_offsets, offset_arithmetic
from jepsen_tests.checkers.log.order import key_order, real_time_order
from jepsen_tests.checkers.log.reads import committed_visibility, polls
from jepsen_tests.checkers.log.registers import linearizable_registers
from jepsen_tests.checkers.log.times import offsets_by_time
from jepsen_tests.checkers.shared.judgement import (
    ALWAYS,
    Checker,
    Judgement,
    Valid,
    together,
)
from jepsen_tests.checkers.shared.parts import parts_of
from jepsen_tests.checkers.shared.readers import LOOKUPS
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import History
from jepsen_tests.history.history_file import uncollected

__all__ = ["CHECKERS", "CheckerCrashed", "judge"]

SENDS: Final = ("send", "resend")
POLLS: Final = ("poll",)
REGISTERS: Final = ("commit", "reset", "committed", "set", "get")
NEVER: Final[tuple[str, ...]] = ()
"""No function of a workload makes sure that such a checker has something to look at."""
CHECKERS: Final = (
    Checker(
        "C1", "acknowledged loss",
        "the final reads show each acknowledged or proven value, on each member",
        ("lost", "lost-on-node"), acknowledged_loss, SENDS,
    ),
    Checker(
        "C2", "lost write", "consumers do not pass over such a value",
        ("lost-write",), lost_write, SENDS,
    ),
    Checker(
        "C3", "unseen", "somebody has read each acknowledged value by the end of the final phase",
        ("unseen",), unseen, SENDS,
    ),
    Checker(
        "C4", "inconsistent offsets", "replies, polls and drains show one value at an offset",
        ("inconsistent-offset",), inconsistent_offsets, SENDS,
    ),
    Checker("C5", "duplicates", "a value has one offset", ("duplicate",), duplicates, SENDS),
    Checker(
        "C6", "aborted read", "nobody sees a value of a refused send or of a fenced producer",
        ("aborted-read", "fenced-write"), aborted_read, SENDS,
    ),
    Checker(
        "C7", "phantom, corruption", "each value that is read was sent to that place byte for byte",
        ("phantom", "misplaced", "corrupt"), phantoms, POLLS,
    ),
    Checker(
        "C8", "offset arithmetic",
        "offsets of a process grow, replies name the true offset, batches and logs have no holes",
        ("nonmonotonic-send", "wrong-reply", "split-batch", "gap"), offset_arithmetic, SENDS,
    ),
    Checker(
        "C9", "real-time order", "a value stored before a send began stands before that send's",
        ("real-time",), real_time_order, SENDS,
    ),
    Checker(
        "C10", "polls", "a reader continues where it stood: it skips nothing and does not go back",
        ("poll-skip", "nonmonotonic-poll", "int-poll-skip", "int-nonmonotonic-poll"), polls, POLLS,
    ),
    Checker(
        "C11", "committed visibility",
        "a value that was read stays readable; bounds are true; a trim takes no more than asked",
        ("un-read", "bounds-back", "stale-bounds", "high-bounds", "over-trimmed"),
        committed_visibility, POLLS,
    ),
    Checker(
        "C12", "key order", "values of an ordering key are in one place, in the order of sends",
        ("key-moved", "key-order"), key_order, NEVER,
    ),
    Checker(
        "C14", "linearizable registers", "group offsets and registers each behave like one copy",
        ("not-linearizable",), linearizable_registers, REGISTERS,
    ),
    Checker(
        "C15", "replica equality", "members hold identical applied entries and state",
        ("different-entry", "different-digest", "missing-entry"), replica_equality,
    ),
    Checker(
        "C16", "Raft invariants", "a term has one leader; term, commit, applied never go back",
        ("two-leaders", "other-leader", "unnamed-leader", "index-order", "term-back", "first-back",
         "commit-back", "applied-back", "stood-still"),
        raft_invariants,
    ),
    Checker(
        "C17", "recovery time",
        "after a fault or a chain of faults, writes work again within the budget",
        ("too-slow",), recovery_time, NEVER,
    ),
    Checker(
        "C18", "liveness after heal", "in the end each place takes writes and all members agree",
        ("not-live", "not-converged", "died"), liveness,
    ),
    Checker(
        "C19", "errors", "each error is one that the operation may meet; enough operations succeed",
        ("unexpected-error",), errors,
    ),
    Checker(
        "C20", "resources", "memory, files and threads of members return to their baseline",
        ("not-returned",), resources, NEVER,
    ),
    Checker(
        "C21", "clients get on",
        "each call ends, clients that keep trying succeed, each place takes writes again",
        ("hung", "starved", "shut-out"), clients_get_on,
    ),
    Checker(
        "C22", "lookups", "lookups find what was acknowledged before they began, and nothing else",
        ("not-found", "found-other", "found-twice"), lookups, LOOKUPS,
    ),
    Checker(
        "C23", "offsets by time", "the first record stored at or after a time, by the store times",
        ("stamp-differs", "stamp-back", "passed-over", "too-early", "beyond-end", "time-back"),
        offsets_by_time, ("by-time",),
    ),
    Checker(
        "C24", "holds", "no trim passes a hold that lasts; what is held can be read",
        ("hold-passed", "held-unreadable", "held-by-nobody"), holds, ("hold",),
    ),
    Checker(
        "C25", "exports", "versions follow one another, each complete and in order; held is kept",
        ("export-differs", "export-not-next", "export-order", "export-twice", "export-hole",
         "export-gap", "export-held-trimmed", "export-short"),
        exports, ("export",),
    ),
    Checker(
        "C26", "topics of groups", "in the end all broker groups have the same topics",
        ("other-topics",), same_topics, ("topics",), of_all_groups=True,
    ),
    Checker(
        "C27", "delivery",
        "each consumer group finishes with each message, and gets none again after that",
        ("undelivered", "unfinished", "delivered-again", "misdelivered", "stuck"), delivered,
        ("handle",),
    ),
    Checker(
        "C28", "order of delivery", "ordered groups keep their order, one call at a time",
        ("out-of-order", "at-once", "two-holders"), delivery_order, ("handle",),
    ),
    Checker(
        "C29", "attempts and dead letters", "failures are counted; a dead letter is there once",
        ("wrong-attempts", "retried-twice", "resent-twice", "died-twice", "died-early"), attempts,
        ("handle",),
    ),
    Checker(
        "C30", "delays", "delayed messages come in time, and not at all once they are taken back",
        ("fired-early", "not-fired", "fired-after-recall"), delays, ("delay",),
    ),
)  # fmt: skip


class CheckerCrashed(Exception):
    """A checker raised an exception: the harness failed, and the history has no verdict."""


@uncollected()
def judge(history: History) -> list[Judgement]:
    """Run all checkers; CheckerCrashed names one that raises.

    Of several broker groups each is judged by itself, but for rules about all of them.
    """
    whole = View(history)
    parts = parts_of(history)
    views = {group: View(part) for group, part in parts.items()} if len(parts) > 1 else {"": whole}
    judgements: list[Judgement] = []
    for checker in CHECKERS:
        try:
            mine = {"": whole} if checker.of_all_groups else views
            found = {group: _checked(checker, view) for group, view in mine.items()}
            judgements.append(together(found))
        except Exception as error:
            crash = f"{checker.number} {checker.name}: {type(error).__name__}: {error}"
            raise CheckerCrashed(crash) from error
    return judgements


def _checked(checker: Checker, view: View) -> Judgement:
    """Run a checker. If it had nothing to look at, its judgement is unknown."""
    judgement = checker.check(view)
    if not judgement.facts["looked_at"] and judgement.valid is Valid.YES:
        judgement.unknown("there was nothing to look at")
    if not judgement.facts["looked_at"]:
        judgement.is_asked &= bool({ALWAYS, *view.functions} & set(checker.asked_by))
    return judgement
