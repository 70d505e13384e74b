"""C9, C12: the order of the log is the order in which sends followed each other."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.realtime import high_water
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import Kind, Op


def real_time_order(view: View) -> Judgement:
    """C9. What was acknowledged, or read, before a send began stands before what that one sent.

    Linearizable append. The second may be of unknown outcome when a read shows where it is. Of a
    value that is at several offsets the harmless one is taken: duplicates are C5's; equal offsets
    of two values C4's.
    """
    judgement = Judgement("C9")
    looked_at = 0
    for place, ops in _by(view, lambda op: op.k):
        looked_at += len(ops)
        for later, earlier, offset in _out_of_order(view, ops):
            judgement.add(
                "real-time",
                f"{place}: {_shown(earlier)} was known to be at offset {offset} before "
                f"{_shown(later)} began, which stands below it",
                (earlier.i, earlier.done, later.i, later.done or later.i),
            )
    judgement.facts["looked_at"] = looked_at
    return judgement


def key_order(view: View) -> Judgement:
    """C12. Values of one ordering key are in one place, and read there as they were sent.

    A key is what one producer sends in one life: its sends follow each other in the order of the
    calls, whether or not it waited in between, whatever became of them. First occurrences count,
    so that repeats are C5's only. Stronger than the order checker of openmessaging-chaos, which
    takes completions for the order and ignores sends of unknown outcome.
    """
    judgement = Judgement("C12")
    looked_at = 0
    for key, ops in _by(view, lambda op: op.key):
        looked_at += len(ops)
        moved = next((op for op in ops if op.k != ops[0].k), None)
        if moved is not None:
            judgement.add(
                "key-moved",
                f"key {key}: sent to {ops[0].k}, then to {moved.k}",
                (ops[0].i, moved.i),
            )
            continue
        for earlier, later in _swapped(view, ops):
            judgement.add(
                "key-order",
                f"key {key} in {later.k}: {_shown(later)} is read before {_shown(earlier)}, which "
                "was sent before it",
                (earlier.i, earlier.done or earlier.i, later.i, later.done or later.i),
            )
    judgement.facts["looked_at"] = looked_at
    return judgement


def _swapped(view: View, ops: list[Op]) -> Iterator[tuple[Op, Op]]:
    """Yield (earlier, later) of sends whose first copies stand the wrong way round."""
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
    """Group sends that have a name; of several attempts the first not refused stands for all."""
    groups: defaultdict[str, list[Op]] = defaultdict(list)
    known = view.log.sent
    for op in view.sends:
        if called := name(op):
            first = known[op.asked[0]]
            if first.op is op and first.outcome is not Kind.FAIL:
                groups[called].append(op)
    return groups.items()


def _out_of_order(view: View, ops: list[Op]) -> Iterator[tuple[Op, Op, int]]:
    """Yield (later, earlier, offset of earlier) of sends that stand the wrong way round."""
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
