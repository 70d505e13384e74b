"""C21: no call hangs, no client fails all the time, no queue stays closed."""

from collections.abc import Iterable
from typing import Final

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.view import NS, View, grouped, seconds
from jepsen_tests.errors import CANCELLED
from jepsen_tests.history.events import HEAL, NEVER, Kind, Op
from jepsen_tests.history.faults import phase_of

HUNG_SECONDS: Final = 20.0
"""Four times the longest deadline of a client's call. What should have ended the call did not."""
STARVED_MIN: Final = 10
"""A client starves after at least so many operations, which all failed."""
STARVED_SHARE: Final = 0.75
"""These operations span at least this share of the time before the final phase."""
OF_MANY_CALLS: Final = ("drain", "entries")
"""Operations of many calls, which may take long. They hang only if they never end."""
NOT_TRIED: Final = ("crash", "zombie-send", "resources")
"""Operations that need no cluster, or that the cluster must refuse."""


def clients_get_on(view: View) -> Judgement:
    """C21. Each call ends, each client succeeds now and then, each queue opens again.

    Each call has a deadline. A call that goes on long after its deadline is "hung". A client that
    tried through the whole run and never succeeded, while other clients succeeded with the same
    operations, is "starved". After an unknown outcome a client goes on under another process
    number; the checker follows it. A queue that acknowledged no send after the last heal is
    "shut-out". Only a run that ended in order is judged.
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
                f"{op.f} {op.k} of process {op.p} did not end for {seconds(waited)} s",
                (op.i, op.done) if op.done else (op.i,),
            )


def _ended_by_itself(op: Op) -> bool:
    return op.done > 0 and not op.err.startswith(CANCELLED)


def clients_of(ops: Iterable[Op]) -> dict[int, list[Op]]:
    """Return the operations of each client, by its first process number."""
    first: dict[int, int] = {}
    return grouped(ops, lambda op: first.setdefault(op.p, first.get(op.before, op.p)))


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
                f"the client that began as process {number} tried {len(tried)} operations "
                f"({', '.join(sorted(what))}) in {seconds(end - start)} s, and none succeeded; its "
                f"last error: {tried[-1].err or 'no answer'}; meanwhile others succeeded, such as "
                f"process {lucky.p}",
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
    tried = grouped((op for op in view.sends if op.i > healed), lambda op: op.k)
    for place, ops in sorted(tried.items()):
        sends = f"none of {len(ops)} sends after the last heal was acknowledged"
        judgement.none_succeeded("shut-out", f"{place}: {sends}", ops, healed)
