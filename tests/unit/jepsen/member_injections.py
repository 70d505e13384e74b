"""Anomalies of members, of availability and of outcomes, put into a valid history."""

from typing import Any

from jepsen_tests.checkers.cluster.clients import clients_of
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import Kind, Op
from tests.unit.jepsen.injections import Broken, names
from tests.unit.jepsen.model import FAULTS
from tests.unit.jepsen.stories import NODES


def _statuses(b: Broken) -> list[Op]:
    """Return the last two statuses of each member."""
    return [op for op in b.of("status") if op.is_ok and op.i > b.final][-2 * len(NODES) :]


@names("different-entry")
def change_an_entry(b: Broken) -> bool:
    said = b.member("entries")
    if said["applied"]:
        said["crcs"][b.random.randrange(said["applied"])] ^= 1
    return bool(said["applied"])


@names("missing-entry")
def lose_an_applied_entry(b: Broken) -> bool:
    said = b.member("entries")
    said["terms"], said["crcs"] = said["terms"][:-1], said["crcs"][:-1]
    return bool(said["terms"])


@names("other-leader", may="unnamed-leader")
def name_another_leader(b: Broken) -> bool:
    op = b.pick([op for op in _statuses(b)[: len(NODES)] if op.result["role"] == "follower"])
    op.result["leader"] = op.node if op.result["leader"] != op.node else "n9"
    op.result["leader"] = next(n for n in NODES if n not in (op.node, op.result["leader"])
                               and n != _leader(b))  # fmt: skip
    return True


def _leader(b: Broken) -> str:
    return next(op.node for op in _statuses(b) if op.result["role"] == "leader")


@names("unnamed-leader")
def let_nobody_name_the_leader(b: Broken) -> bool:
    for op in _statuses(b)[len(NODES) :]:
        op.result["leader"] = ""
    return True


@names("different-digest")
def change_a_digest(b: Broken) -> bool:
    b.member("entries")["digest"] = "other"
    return True


@names("two-leaders", may="other-leader")
def let_two_lead(b: Broken) -> bool:
    for op in _statuses(b)[: len(NODES)]:
        op.result["role"] = "leader"
    return True


def _set_back(b: Broken, figure: str, by: int) -> bool:
    first, last = _statuses(b)[0], _statuses(b)[len(NODES)]
    assert first.node == last.node
    last.result[figure] = first.result[figure] - by
    return bool(first.result[figure] >= by)


@names("term-back", "not-converged")
def let_a_term_go_back(b: Broken) -> bool:
    # A follower, so that nobody is said to lead in another's term.
    statuses = _statuses(b)
    followers = [op for op in statuses[len(NODES) :] if op.result["role"] == "follower"]
    op = b.pick(followers)
    op.result["term"] = 0
    return True


@names("commit-back", "index-order", "not-converged")
def let_a_commit_index_go_back(b: Broken) -> bool:
    # It falls below what is applied, and below the others'.
    return _set_back(b, "commit", 1)


@names("applied-back", "not-converged")
def let_an_applied_index_go_back(b: Broken) -> bool:
    return _set_back(b, "applied", 1)


@names("first-back")
def let_a_first_index_go_back(b: Broken) -> bool:
    return _set_back(b, "first", 1)


@names("stood-still")
def let_a_member_stand_still(b: Broken) -> bool:
    row = next((row for row in b.rows if row.f == "pause" and row.type is Kind.OK), None)
    if row is None:
        return False
    before = b.rows[row.i - 2]
    before.type, before.f, before.k = Kind.OK, "phase", "faults"  # it was begun there
    row.f, row.k, row.err = "stood-still", "n1", "0.001 s"
    row.v = {"applied": 4, "others": {"n2": [5, 9]}}
    faults = View(b.story.history()).faults
    return not any(
        fault.start <= row.t <= fault.end and fault.hits("n1", NODES) for fault in faults
    )


@names("index-order", "not-converged")
def apply_beyond_the_log(b: Broken) -> bool:
    _statuses(b)[-1].result["applied"] += 1
    return True


@names("too-slow")
def take_too_long(b: Broken) -> bool:
    b.story.head.notes["budgets"] = dict.fromkeys(FAULTS, 0.0)
    faults = [row for row in b.rows if row.f in b.story.head.notes["budgets"]]
    return bool(faults)


def _take_no_writes(b: Broken, after: int) -> None:
    place = b.random.choice(["t/0", "t/1", "u/0"])
    for op in b.of("send", "resend"):
        if op.k == place and op.i > after and op.done:
            row: Any = b.row(op)
            row.type, row.v, row.err = Kind.INFO, None, "DEADLINE"


@names("not-live", may="shut-out")
def take_no_writes_in_the_end(b: Broken) -> bool:
    _take_no_writes(b, b.final)
    return True


@names("shut-out", "not-live")
def take_no_writes_after_the_heal(b: Broken) -> bool:
    _take_no_writes(b, max(row.i for row in b.rows if row.f == "heal"))
    return True


@names("hung")
def let_a_call_hang(b: Broken) -> bool:
    op = b.pick([op for op in b.ops if op.outcome is Kind.INFO and op.done])
    if op:
        b.row(op).err = "CANCELLED: the run is over"
        for row in b.rows[op.done - 1 :]:
            row.t += 60 * 1_000_000_000
        b.story.wait(60_000)
    return bool(op)


@names("starved")
def let_a_consumer_fail_always(b: Broken) -> bool:
    clients = clients_of(op for op in b.ops if op.i < b.final)
    working = b.rows[b.final - 1].t - b.ops[0].began
    for ops in clients.values():
        tried = [op for op in ops if op.f in ("poll", "assign")]
        if (
            {op.f for op in ops} <= {"poll", "assign", "crash"}
            and len(tried) > 11
            and (tried[-1].over - tried[0].began > 0.8 * working)
        ):
            for op in ops:
                row: Any = b.row(op)
                row.type, row.v, row.err = Kind.FAIL, None, "NOT_LEADER"
            return True
    return False


@names("not-converged")
def let_nobody_lead_in_the_end(b: Broken) -> bool:
    for op in _statuses(b):
        op.result["role"] = "follower"
    return True


@names("died")
def let_a_member_die(b: Broken) -> bool:
    row = next((row for row in b.rows if row.f == "pause" and row.type is Kind.OK), None)
    if row is not None:
        row.f, row.k, row.err = "died", "n1", "exit 70"
    return row is not None


@names("unexpected-error")
def fail_with_something_new(b: Broken) -> bool:
    op = b.pick([op for op in b.ops if op.err])
    if op:
        b.row(op).err = "AttributeError: None has no attribute x"
    return bool(op)


@names("not-returned")
def keep_files_open(b: Broken) -> bool:
    b.member("resources")["files"] += 1000
    return True


@names("other-topics")
def forget_a_topic(b: Broken) -> bool:
    b.member("topics").clear()
    return True
