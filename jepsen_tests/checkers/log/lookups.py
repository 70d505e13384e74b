"""C22: a lookup finds what was acknowledged before it began, and nothing else."""

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.log_view import Sent
from jepsen_tests.checkers.shared.readers import LOOKUPS
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import Op


def lookups(view: View) -> Judgement:
    """C22. Lookups by offset, key and message id see all that was acknowledged or read before.

    A value has keys of its own ("value/number"), so a lookup finds one record at most. What was
    trimmed need not be found. That each found record was sent, and stands there: C4, C5, C7.
    """
    judgement = Judgement("C22")
    found = [op for op in view.ops(*LOOKUPS) if op.is_ok]
    for op in found:
        if not op.result:
            _not_found(view, op, judgement)
            continue
        if len(op.result) > 1:
            _add(judgement, "found-twice", op, f"found {len(op.result)} records: {op.result}")
        for row in op.result:
            if not _fits(op, row):
                _add(judgement, "found-other", op, f"found {row[2]} in {row[0]} at {row[1]}")
    judgement.facts["looked_at"] = len(found)
    return judgement


def wanted_value(op: Op) -> str:
    """Return the value that a lookup by key or message id is to find."""
    asked: str = op.asked
    return asked.rpartition("/")[0] if op.f == "lookup-key" else asked


def _fits(op: Op, row: tuple[str, int, str, int]) -> bool:
    place, offset, value, _ = row
    if op.f == "lookup":
        return (place, offset) == (op.k, op.asked)
    return place.rpartition("/")[0] == op.k and value == wanted_value(op)


def _not_found(view: View, op: Op, judgement: Judgement) -> None:
    if op.f == "lookup":
        spot = view.log.places[op.k].spots.get(op.asked)
        if spot is None or op.asked < view.log.places[op.k].floor_at(op.done):
            return
        known, value = min(spot.row, spot.read_row or spot.row), spot.value
    else:
        sent = view.log.sent.get(wanted_value(op))
        if sent is None or not sent.counts or _is_trimmed(sent, op):
            return
        known, value = sent.known_row, wanted_value(op)
    if known < op.i:
        text = f"found nothing, though {value} was known to be stored since row {known}"
        _add(judgement, "not-found", op, text, known)


def _is_trimmed(sent: Sent, op: Op) -> bool:
    """Say whether a value may be gone: nothing says that it stands above all trims."""
    return sent.lowest < sent.place.floor_at(op.done)


def _add(judgement: Judgement, kind: str, op: Op, text: str, row: int = 0) -> None:
    rows = (row, op.i, op.done) if row else (op.i, op.done)
    judgement.add(kind, f"{op.k}: {op.f} of {op.asked} {text}", rows)
