"""C1, C2, C3: values that were acknowledged or read, and are gone."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.log_view import FINAL, POLLED, PlaceLog, Sent
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import Op


def acknowledged_loss(view: View) -> Judgement:
    """C1. The final reads of a place show each acknowledged or proven value, on each member.

    A value is judged where final reads went; what lies above them is for C3. A value whose offset
    nobody remembers is judged when final reads went through the whole place. The finding says
    whether a writer lost the beginning, the middle or the end of its values, as in Jepsen's NATS
    queue checker: a slow reader cannot explain the middle.
    """
    judgement = Judgement("C1")
    if not view.log.sent:
        judgement.facts["looked_at"] = 0
        return judgement
    lost: list[tuple[str, Sent]] = []
    looked_at = unread = 0
    for value, sent in view.log.sent.items():
        if sent.seen & FINAL:
            looked_at += 1
        elif sent.counts and not _may_be_gone(sent):
            looked_at += 1
            unread += not sent.place.finally_asked
            if _is_judged(sent, view):
                lost.append((value, sent))
    _name_lost(view, judgement, lost)
    _lost_on_nodes(view, judgement)
    judgement.facts |= {"looked_at": looked_at, "lost": len(lost)}
    if view.cut_short:
        judgement.unknown(view.cut_short)
    elif unread:
        judgement.unknown(f"nobody read the places of {unread} values in the final phase")
    return judgement


def _may_be_gone(sent: Sent) -> bool:
    """Say whether a value may have been trimmed before any final read could show it.

    This may be so for a value whose offset nobody knows, too.
    """
    place = sent.place
    if sent.lowest < 0:
        return place.may_hide(sent.op.i)
    return sent.lowest < place.floor and sent.lowest not in place.finally_read


def _is_judged(sent: Sent, view: View) -> bool:
    """Say whether final reads went through the offset of a value. Damaged bytes are for C7.

    When a signal ended the run, a value of unknown offset may stand above what was read.
    """
    place, offset = sent.place, sent.lowest
    if offset < 0:
        is_whole = place.is_finally_whole and not view.cut_short
        return is_whole and sent.known_row < place.finally_asked
    return offset in place.finally_read and offset not in place.corrupt


def _name_lost(view: View, judgement: Judgement, lost: Iterable[tuple[str, Sent]]) -> None:
    writers = {(sent.op.p, sent.op.k) for _, sent in lost}
    kept: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for sent in view.log.sent.values() if writers else ():
        writer = sent.op.p, sent.op.k
        if writer in writers and sent.seen & FINAL:
            kept[writer].append(sent.op.i)
    for value, sent in lost:
        proof = "acknowledged" if sent.acked_row else "read before"
        judgement.add(
            "lost",
            f"{sent.op.k}: {value}, {proof} {sent.where}, is in no final read "
            f"({_part(sent.op.i, kept[sent.op.p, sent.op.k])} of what process {sent.op.p} wrote)",
            sent.rows(),
        )


def _part(row: int, kept: list[int]) -> str:
    if not kept:
        return "all"
    if row < min(kept):
        return "prefix"
    return "postfix" if row > max(kept) else "middle"


@dataclass(slots=True)
class _Drain:
    """All that one member serves of one place."""

    node: str
    op: Op
    end: int = 0
    values: set[str] = field(default_factory=set[str])


def _lost_on_nodes(view: View, judgement: Judgement) -> None:
    """Name what a member's drain lacks although another final read has it.

    A member may be a little behind, so what lies above all it serves is demanded only if it was
    certainly stored before the final phase began.
    """
    drains = _drains(view)
    judgement.facts["drains"] = sum(map(len, drains.values()))
    held: defaultdict[str, list[str]] = defaultdict(list)
    for value, sent in view.log.sent.items():
        if sent.seen & FINAL:
            held[sent.op.k].append(value)
    undrained = {node for node in view.header.nodes for k in held if node not in drains[k]}
    if undrained and not view.cut_short:
        judgement.unknown(f"there is no complete drain of {', '.join(sorted(undrained))}")
    if view.final_row is None:
        return
    for k, values in held.items():
        for drain in drains[k].values():
            if drain.values.issuperset(values):
                continue
            for value in values:
                sent = view.log.sent[value]
                if value not in drain.values and _is_demanded(sent, drain, view.final_row):
                    judgement.add(
                        "lost-on-node",
                        f"{k}: {value} at offset {sent.lowest} is missing on {drain.node}, "
                        f"whose drain reaches {drain.end}; another member showed it",
                        (*sent.rows(), drain.op.done),
                    )


def _drains(view: View) -> defaultdict[str, dict[str, _Drain]]:
    """Return, by place and member, what the member served in the final phase."""
    drains: defaultdict[str, dict[str, _Drain]] = defaultdict(dict)
    for op in view.final("drain"):
        drain = drains[op.k][op.node] = _Drain(op.node, op)
        for _, offset, values in op.result:
            drain.end = max(drain.end, offset + len(values))
            drain.values.update(values)
    return drains


def _is_demanded(sent: Sent, drain: _Drain, final_row: int) -> bool:
    floor = sent.place.floor_at(drain.op.done)
    if not sent.counts or sent.lowest < floor or sent.lowest in sent.place.corrupt:
        return False
    return sent.lowest < drain.end or sent.known_row < final_row


def lost_write(view: View) -> Judgement:
    """C2. Consumers do not pass over an acknowledged or proven value without getting it.

    Jepsen's kafka workload (lost-write) compares with the highest polled offset. There each reader
    begins at 0; here only offsets count through which some reader went. C2 needs no final read, so
    it can judge a history that a signal cut short.
    """
    judgement = Judgement("C2")
    looked_at = 0
    for value, sent in view.log.sent.items():
        place = sent.place
        looked_at += 1
        if sent.seen & POLLED or not sent.counts:
            continue
        if sent.highest in place.corrupt or sent.highest not in place.polled:
            continue
        judgement.add(
            "lost-write",
            f"{place.name}: no poll returned {value} at offset {sent.highest}, though readers "
            f"went on to {place.polled.end}",
            sent.rows(),
        )
    judgement.facts["looked_at"] = looked_at
    if looked_at and not any(place.polled for place in view.log.places.values()):
        judgement.unknown("nobody polled anything")
    return judgement


def unseen(view: View) -> Judgement:
    """C3. By the end of the final phase somebody has read each value acknowledged before it.

    Jepsen's kafka workload (unseen). C3 finds loss above the highest read, which C1 and C2 cannot
    find. Where a place has no final read at all, only values count that nobody ever read. In a run
    that a signal ended nothing is unseen: its reads might have come to the value.
    """
    judgement = Judgement("C3")
    looked_at = later = 0
    for value, sent in view.log.sent.items():
        place = sent.place
        looked_at += 1
        if sent.seen & FINAL or not sent.counts or _may_be_gone(sent):
            continue
        if view.final_row is None or view.cut_short:
            continue
        if sent.known_row > max(view.final_row, place.finally_asked):
            later += 1
        elif _is_unseen(place, sent):
            judgement.add(
                "unseen",
                f"{place.name}: {value} {sent.where}, "
                f"{'which was read before' if sent.read_row else 'which nobody ever read'}, is not "
                f"in the final reads, which end at {place.final_end}",
                sent.rows(),
            )
    judgement.facts |= {"looked_at": looked_at, "acknowledged_too_late": later}
    if view.cut_short and looked_at:
        judgement.unknown(view.cut_short)
    return judgement


def _is_unseen(place: PlaceLog, sent: Sent) -> bool:
    if not place.finally_asked:
        return not sent.read_row
    if sent.lowest < 0:
        return not place.is_finally_whole  # else it is C1's
    if sent.lowest >= place.final_end:
        return sent.lowest not in place.corrupt
    return sent.lowest not in place.finally_read and not sent.read_row
