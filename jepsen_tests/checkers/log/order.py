"""C9, C12: the order of the log is the order in which sends followed each other."""

from collections.abc import Callable, Iterable, Iterator

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.realtime import high_water
from jepsen_tests.checkers.shared.view import View, grouped
from jepsen_tests.history.events import Kind, Op


def real_time_order(view: View) -> Judgement:
    """C9. A value acknowledged or read before a send began stands before the values of that send.

    This is linearizable append. The later send may have an unknown outcome when a read shows its
    offset. Of a value with several offsets the harmless offset counts: duplicates are for C5. Two
    values at one offset are for C4.
    """
    judgement = Judgement("C9")
    looked_at = 0
    for place, ops in _by(view, lambda op: op.k):
        looked_at += len(ops)
        for later, earlier, offset in _out_of_order(view, ops):
            judgement.add(
                "real-time",
                f"{place}: {_shown(earlier)} was known to stand at offset {offset} before the send "
                f"of {_shown(later)} began, but {_shown(later)} stands below it",
                (earlier.i, earlier.done, later.i, later.done or later.i),
            )
    judgement.facts["looked_at"] = looked_at
    return judgement


def key_order(view: View) -> Judgement:
    """C12. Values of an ordering key are in one place, in the order in which they were sent.

    A key stands for the sends of one producer in one life. They have the order of the producer's
    calls, whether or not the producer waited between them, and whatever their outcomes. The first
    copy of a value counts, so that repeats are for C5 alone. This is stronger than the order
    checker of openmessaging-chaos, which takes the order of completions and ignores sends of
    unknown outcome.
    """
    judgement = Judgement("C12")
    looked_at = 0
    for key, ops in _by(view, lambda op: op.key):
        looked_at += len(ops)
        moved = next((op for op in ops if op.k != ops[0].k), None)
        if moved is not None:
            judgement.add(
                "key-moved",
                f"key {key}: the producer sent to {ops[0].k}, then to {moved.k}",
                (ops[0].i, moved.i),
            )
            continue
        for earlier, later in _swapped(view, ops):
            judgement.add(
                "key-order",
                f"key {key} in {later.k}: readers get {_shown(later)} before {_shown(earlier)}, "
                "though it was sent after it",
                (earlier.i, earlier.done or earlier.i, later.i, later.done or later.i),
            )
    judgement.facts["looked_at"] = looked_at
    return judgement


def _swapped(view: View, ops: list[Op]) -> Iterator[tuple[Op, Op]]:
    """Yield (earlier, later) for sends whose first copies stand in the wrong order."""
    highest, earlier = -1, ops[0]
    for op in sorted(ops, key=lambda op: op.i):
        read = [sent.first for sent in view.log.batch(op) if sent.first >= 0]
        if not read:
            continue
        if min(read) < highest:
            yield earlier, op
        if max(read) > highest:
            highest, earlier = max(read), op


def _shown(op: Op) -> str:
    return op.asked[0] if len(op.asked) == 1 else f"{op.asked[0]} (and {len(op.asked) - 1} more)"


def _by(view: View, name: Callable[[Op], str]) -> Iterable[tuple[str, list[Op]]]:
    """Group sends by name. Of several attempts the first that was not refused stands for all."""
    known = view.log.sent
    firsts = (
        op for op in view.sends
        if name(op) and (sent := known[op.asked[0]]).op is op and sent.outcome is not Kind.FAIL
    )  # fmt: skip
    return grouped(firsts, name).items()


def _out_of_order(view: View, ops: list[Op]) -> Iterator[tuple[Op, Op, int]]:
    """Yield (later, earlier, offset of earlier) for sends that stand in the wrong order."""
    completed: list[tuple[int, int, Op]] = []
    invoked: list[tuple[int, tuple[Op, int]]] = []
    known = view.log.sent
    for op in ops:
        if len(op.asked) == 1:
            sent = known[op.asked[0]]
            low, high = sent.lowest, sent.highest
            if low >= 0 and sent.known_row:
                completed.append((sent.known_row, low, op))
        else:
            batch = view.log.batch(op)
            completed += [(sent.known_row, sent.lowest, op) for sent in batch if sent.known_row]
            low = max(sent.lowest for sent in batch)
            high = min((sent.highest for sent in batch if sent.highest >= 0), default=-1)
        if low >= 0:
            invoked.append((op.i, (op, high)))
    for (later, stands), offset, earlier in high_water(completed, invoked):
        if stands < offset:
            yield later, earlier, offset
