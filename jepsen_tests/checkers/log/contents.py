"""C6, C7: nothing is visible that was refused, fenced, never sent, or changed."""

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import Kind


def aborted_read(view: View) -> Judgement:
    """C6. A value is never visible when every attempt to send it certainly failed.

    Jepsen's kafka workload (G1a). A value of a producer that its successor fenced off is never
    visible and never acknowledged. If it is acknowledged and stands nowhere, that is also a loss
    (C1, C3).
    """
    judgement = Judgement("C6")
    refused = 0
    for value, sent in view.log.sent.items():
        if sent.is_fenced and (sent.acked_row or sent.read_row):
            judgement.add(
                "fenced-write",
                f"{sent.op.k}: {value} came from a producer that has a successor, and was "
                f"{'acknowledged' if sent.acked_row else 'read'} {sent.where}",
                sent.rows(),
            )
            continue
        if sent.outcome is not Kind.FAIL:
            continue
        refused += 1
        if sent.read_row:
            judgement.add(
                "aborted-read",
                f"{sent.op.k}: the send of {value} was refused ({sent.op.err}), but a reader got "
                f"it at offset {sent.first}",
                (sent.op.i, sent.op.done, sent.read_row),
            )
    judgement.facts |= {"looked_at": len(view.log.sent), "refused": refused}
    return judgement


def phantoms(view: View) -> Judgement:
    """C7. Each value that is read was sent to that place, and its bytes are the bytes sent.

    Jepsen's queue checkers (unexpected).
    """
    judgement = Judgement("C7")
    for stray in view.log.strays:
        if stray.sent is None:
            kind, what = "phantom", "nobody ever sent it"
            rows: tuple[int, ...] = (stray.row,)
        else:
            kind, what = "misplaced", f"it was sent to {stray.sent.op.k}"
            rows = stray.sent.op.i, stray.row
        judgement.add(
            kind, f"{stray.place}: {stray.value} was read at offset {stray.offset}; {what}", rows
        )
    for stray in view.log.corrupt:
        judgement.add(
            "corrupt",
            f"{stray.place}: the message read at offset {stray.offset} is not the message sent: "
            f"{stray.value[1:200]}",
            (stray.row,),
        )
    judgement.facts["looked_at"] = view.readers.runs
    return judgement
