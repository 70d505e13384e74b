"""C4, C5, C8: one value at an offset, one offset for a value, and no holes."""

from bisect import bisect_left

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.log_view import PlaceLog, Sent
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import Kind, Op


def inconsistent_offsets(view: View) -> Judgement:
    """C4. Replies, polls and drains show one value at an offset of a place.

    Jepsen's kafka workload (inconsistent-offsets).
    """
    judgement = Judgement("C4")
    for clash in view.log.clashes:
        judgement.add(
            "inconsistent-offset",
            f"{clash.place}: offset {clash.offset} holds {clash.first.value} in row "
            f"{clash.first.row} and {clash.second.value} in row {clash.second.row}",
            (clash.first.row, clash.second.row),
        )
    judgement.facts["looked_at"] = sum(len(log.spots) for log in view.log.places.values())
    return judgement


def duplicates(view: View) -> Judgement:
    """C5. A value has one offset in its place.

    Jepsen's kafka workload (duplicate). A duplicate was read at two offsets, or two attempts at its
    send were acknowledged with different offsets.
    """
    judgement = Judgement("C5")
    for value, sent in view.log.sent.items():
        if sent.first != sent.last:
            pair = sent.first, sent.last
        elif sent.acked_elsewhere >= 0:
            pair = sent.acked_offset, sent.acked_elsewhere
        else:
            continue
        judgement.add(
            "duplicate",
            f"{sent.op.k}: {value} is at offset {pair[0]} and at {pair[1]}",
            (sent.op.i, *(_row_of(sent.place, offset, value) for offset in pair)),
        )
    judgement.facts["looked_at"] = len(view.log.sent)
    return judgement


def _row_of(place: PlaceLog, offset: int, value: str) -> int:
    spot = place.spots[offset]
    return spot.row if spot.value == value else place.others[offset, value].row


def offset_arithmetic(view: View) -> Judgement:
    """C8. Replies name the offset at which a value stands, and the offsets of a process grow.

    A batch stands at consecutive offsets, and final reads find no hole. Jepsen's kafka workload
    has nonmonotonic-send; this log also promises that there are no holes, which Kafka does not.
    Two values at one offset are for C4. A hole where a value was known to stand is a loss, for C1.
    """
    judgement = Judgement("C8")
    _growing(view, judgement)
    known = view.log.sent
    for op in view.sends:
        sent = known[op.asked[0]]
        if len(op.asked) > 1 or sent.first != sent.acked_offset:
            _as_replied(view, judgement, op)
    for place in view.log.places.values():
        _holes(place, judgement)
    judgement.facts["looked_at"] = len(view.sends)
    return judgement


def _growing(view: View, judgement: Judgement) -> None:
    last: dict[tuple[int, str], Op] = {}
    for op in view.ops("send"):
        if not op.is_ok or op.result[0] is None:
            continue
        before = last.get((op.p, op.k))
        if before is not None and op.result[0] < before.result[0]:
            judgement.add(
                "nonmonotonic-send",
                f"{op.k}: process {op.p} sent to offset {before.result[0]}, then to {op.result[0]}",
                (before.i, before.done, op.i, op.done),
            )
        last[op.p, op.k] = op


def _as_replied(view: View, judgement: Judgement, op: Op) -> None:
    batch = view.log.batch(op)
    if batch[0].op is not op or batch[0].outcome is Kind.FAIL:
        return  # another attempt stands for this one; a refused one that is visible is for C6
    bases = {sent.first - sent.index for sent in batch if sent.first >= 0}
    if not bases or any(sent.first != sent.last for sent in batch):
        return  # never read; or read at several offsets, for C5
    base = batch[0].acked_offset
    if len(bases) > 1 or (base < 0 and _is_torn(view.log.places[op.k], batch, min(bases))):
        judgement.add(
            "split-batch",
            f"{op.k}: the values of one batch do not stand at consecutive offsets: "
            + ", ".join(
                f"{value} at {sent.first}" for value, sent in zip(op.asked, batch, strict=True)
            ),
            (op.i, op.done, *(sent.read_row for sent in batch if sent.read_row)),
        )
    elif base >= 0 and batch[0].acked_elsewhere < 0 and bases != {base}:
        judgement.add(
            "wrong-reply",
            f"{op.k}: the reply put {op.asked[0]} at offset {base}, but it was read at offset "
            f"{min(bases)}",
            batch[0].rows(),
        )


def _is_torn(place: PlaceLog, batch: list[Sent], base: int) -> bool:
    """Say whether another value stands where a value of the batch should stand."""
    return any(base + sent.index in place.spots for sent in batch if not sent.read_row)


def _holes(place: PlaceLog, judgement: Judgement) -> None:
    known = place.known()
    for start, end in place.finally_read.ranges():
        at, expected = bisect_left(known, start), start
        while expected < end:
            found = min(known[at], end) if at < len(known) else end
            if found > expected:
                row = place.spots[found].row if found in place.spots else 0
                judgement.add(
                    "gap",
                    f"{place.name}: nobody ever saw a value at offsets {expected} to {found - 1}, "
                    f"though final reads reach {end}",
                    (row,) if row else (),
                )
            expected, at = found + 1, at + 1
