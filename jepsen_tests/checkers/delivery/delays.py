"""C30: delayed messages come in time, and not at all once they are taken back."""

from typing import Final

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.log_view import FINAL
from jepsen_tests.checkers.shared.view import NS, View
from jepsen_tests.history.events import Op

SHORT_NS: Final = 5_000_000
"""A time of delivery is a whole millisecond, and two clocks differ a little in their pace."""
LATE_NS: Final = 10 * NS
"""What is due for so long when the final reads begin has to be there."""


def delays(view: View) -> Judgement:
    """C30. Nobody reads a delayed message before its time; in the end it is there.

    A message that somebody took back is never there. Of one that may have been taken back nothing
    is known. That each comes once is C5.
    """
    judgement = Judgement("C30")
    delayed = {op.asked[0]: op for op in view.ops("delay") if op.is_ok}
    judgement.facts["looked_at"] = len(delayed)
    _early(view, judgement, delayed)
    recalls: dict[str, Op] = {}
    for op in view.ops("recall"):
        if op.is_ok or op.asked not in recalls:
            recalls[op.asked] = op
    for value, op in delayed.items():
        sent, recall = view.log.sent[value], recalls.get(value)
        if recall is not None and recall.is_ok and sent.read_row:
            judgement.add(
                "fired-after-recall",
                f"{op.k}: {value} was taken back, and was delivered {sent.where}",
                (op.i, op.done, recall.i, recall.done, sent.read_row),
            )
        elif recall is None and not sent.seen & FINAL and _must_be_there(view, op):
            judgement.add(
                "not-fired",
                f"{op.k}: {value} was accepted and due, and is in no final read",
                (op.i, op.done),
            )
    if delayed and view.cut_short:
        judgement.unknown(view.cut_short)
    return judgement


def _must_be_there(view: View, op: Op) -> bool:
    place = view.log.places[op.k]
    if view.cut_short or not place.is_finally_whole or place.may_hide(op.i):
        return False
    final = next(each for each in view.history.ops if each.i == place.finally_asked)
    due: int = op.result
    return due + LATE_NS < final.began


def _early(view: View, judgement: Judgement, delayed: dict[str, Op]) -> None:
    for read in view.ops("poll", "drain"):
        for place, offset, values in read.result if read.is_ok else ():
            for value in values:
                op = delayed.get(value)
                if op is not None and read.ended < op.result - SHORT_NS:
                    judgement.add(
                        "fired-early",
                        f"{place}: {value} at offset {offset} was read "
                        f"{(op.result - read.ended) / NS:.3f} s before it was due",
                        (op.i, op.done, read.i, read.done),
                    )
