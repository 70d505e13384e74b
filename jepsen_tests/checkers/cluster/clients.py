"""C21: every client gets on: no call hangs, nobody fails all the time, no queue stays closed."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.view import NS, View, seconds
from jepsen_tests.errors import CANCELLED
from jepsen_tests.history.events import HEAL, NEVER, Kind, Op
from jepsen_tests.history.faults import phase_of

HUNG_SECONDS: Final = 20.0
"""Four times the longest deadline of a client's call: whatever was to end it did not."""
STARVED_MIN: Final = 10
"""Operations that must all have failed."""
STARVED_SHARE: Final = 0.75
"""Of the time before the final phase that they must span."""
OF_MANY_CALLS: Final = ("drain", "entries")
"""What reads all that there is: only one that did not end is judged."""
NOT_TRIED: Final = ("crash", "zombie-send", "resources")
"""What needs no cluster, or is to be refused."""


def clients_get_on(view: View) -> Judgement:
    """C21. In a run that ended in order every call ends, every client and queue has its turn.

    Every call has a deadline: one that goes on when that has long passed is "hung". A
    client that tried through the whole run and never succeeded, though others did the same
    meanwhile, is "starved"; it goes on under another number after an unknown outcome, and is
    followed. A queue of which no send was acknowledged any more after the last heal is "shut-out".
    """
    judgement = Judgement("C21")
    judgement.facts["looked_at"] = len(view.history.ops)
    if view.cut_short:
        if view.history.ops:
            judgement.unknown(view.cut_short)
        return judgement
    _hung(view, judgement)
    _starved(view, judgement)
    _shut_out(view, judgement)
    return judgement


def _hung(view: View, judgement: Judgement) -> None:
    ended, most = view.history.ended, round(HUNG_SECONDS * NS)
    for op in view.history.ops:
        waited = min(op.over, ended) - op.began
        if waited > most and not (op.f in OF_MANY_CALLS and _ended_by_itself(op)):
            judgement.add(
                "hung",
                f"{op.f} {op.k} of process {op.p} went on for {seconds(waited)} s",
                (op.i, op.done) if op.done else (op.i,),
            )


def _ended_by_itself(op: Op) -> bool:
    return op.done > 0 and not op.err.startswith(CANCELLED)


def clients_of(ops: Iterable[Op]) -> dict[int, list[Op]]:
    """Return the operations of each client, by the first number that it had."""
    first: dict[int, int] = {}
    clients: defaultdict[int, list[Op]] = defaultdict(list)
    for op in ops:
        if op.p not in first:
            first[op.p] = first.get(op.before, op.p)
        clients[first[op.p]].append(op)
    return clients


def _starved(view: View, judgement: Judgement) -> None:
    final = phase_of(view.history, "final")
    assert final is not None, "a run that is not cut short has a final phase"
    clients = clients_of(op for op in view.history.ops if op.i < final.i)
    judgement.facts["clients"] = len(clients)
    began = min((op.began for ops in clients.values() for op in ops), default=0)
    unlucky = {
        number: tried
        for number, ops in clients.items()
        if not any(op.is_ok and op.f not in NOT_TRIED for op in ops)
        and len(tried := [op for op in ops if op.f not in NOT_TRIED]) >= STARVED_MIN
    }
    for number, tried in unlucky.items():
        start, end = tried[0].began, _end_of(tried[-1], final.t)
        if end - start < STARVED_SHARE * (final.t - began):
            continue
        what = {op.f for op in tried}
        lucky = next(
            (op for op in view.history.ops if op.is_ok and op.f in what and start < op.ended < end),
            None,
        )
        if lucky is not None:
            judgement.add(
                "starved",
                f"none of {len(tried)} operations ({', '.join(sorted(what))}) of process {number} "
                f"and whom it went on as succeeded in {seconds(end - start)} s, the last was "
                f"{tried[-1].err or 'without an answer'}; those of others did, as of process "
                f"{lucky.p}",
                (tried[0].i, tried[-1].i, lucky.i, lucky.done),
            )


def _end_of(op: Op, latest: int) -> int:
    return latest if op.over == NEVER else op.over


def _shut_out(view: View, judgement: Judgement) -> None:
    healed = max(
        (row.i for row in view.history.faults if row.f == HEAL and row.type is Kind.OK), default=0
    )
    if not healed:
        return
    tried: defaultdict[str, list[Op]] = defaultdict(list)
    for op in view.sends:
        if op.i > healed:
            tried[op.k].append(op)
    for place, ops in sorted(tried.items()):
        if not any(op.is_ok for op in ops):
            judgement.add(
                "shut-out",
                f"{place}: none of {len(ops)} sends after the last heal was acknowledged: "
                f"{ops[-1].err or 'no answer'}",
                (healed, *(op.i for op in ops)),
            )
