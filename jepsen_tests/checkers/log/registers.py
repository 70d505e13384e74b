"""C14: offset commits and registers behave like one copy of each."""

from collections import defaultdict
from collections.abc import Iterable

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.linear import Effect, RegisterOp, Stuck, linearize
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import Kind, Op

BEHIND = "OFFSET_BEHIND"
"""The error of a commit that would go back. It shows that a higher offset is stored."""
CONCURRENT_MAX = 8
"""A message shows at most so many concurrent operations."""

_WRITES = {"commit": Effect.RAISE, "reset": Effect.WRITE, "set": Effect.WRITE}
_READS = {"committed", "get"}


def linearizable_registers(view: View) -> Judgement:
    """C14. Each group's offset in a place, and each register, is linearizable.

    A commit takes effect unless it would go back; then it is refused. Only a reset goes back. An
    operation of unknown outcome may take effect at any later time, or never. Knossos and porcupine
    check this with the same search.
    """
    judgement = Judgement("C14")
    keys: defaultdict[tuple[str, str], list[Op]] = defaultdict(list)
    for op in view.ops("commit", "reset", "committed"):
        keys["offset", op.k].append(op)
    for op in view.ops("set", "get"):
        keys["register", op.k].append(op)
    looked_at, given_up = 0, list[str]()
    for (what, name), ops in keys.items():
        certain, pending = _steps(ops)
        looked_at += len(certain) + len(pending)
        stuck = linearize(certain, pending)
        if stuck is None:
            continue
        if stuck.step is None:
            given_up.append(name)
        else:
            _explain(judgement, f"{what} {name}", ops, stuck)
    judgement.facts |= {"looked_at": looked_at, "registers": len(keys)}
    if given_up:
        judgement.unknown(f"there are too many orders to try for {', '.join(given_up)}")
    return judgement


def _steps(ops: Iterable[Op]) -> tuple[list[RegisterOp], list[RegisterOp]]:
    """Return the operations that certainly happened, and the writes that may have happened."""
    certain: list[RegisterOp] = []
    pending: list[RegisterOp] = []
    for op in ops:
        if op.f in _READS:
            if op.is_ok:
                certain.append(RegisterOp(op.i, op.done, Effect.SEE, op.result))
        elif op.is_ok:
            certain.append(RegisterOp(op.i, op.done, _WRITES[op.f], op.asked))
        elif op.outcome is Kind.INFO:
            pending.append(RegisterOp(op.i, 0, _WRITES[op.f], op.asked))
        elif op.f == "commit" and op.err.startswith(BEHIND):
            certain.append(RegisterOp(op.i, op.done, Effect.SEE_ABOVE, op.asked))
    return certain, pending


def _explain(judgement: Judgement, name: str, ops: list[Op], stuck: Stuck) -> None:
    step = stuck.step
    assert step is not None, "the search said where it got stuck"
    concurrent = [
        op
        for op in ops
        if op.i < step.returned and op.i != step.called and _is_open_at(op, step.called)
    ]
    wrong = next(op for op in ops if op.i == step.called)
    shown = ", ".join(map(_shown, concurrent[-CONCURRENT_MAX:])) or "nothing"
    held = " or ".join("nothing" if state is None else str(state) for state in stuck.states)
    judgement.add(
        "not-linearizable",
        f"{name}: no order of the operations explains {_shown(wrong)} in row {wrong.done}; in "
        f"every order up to it the value is {held}; concurrent operations: {shown}",
        (wrong.i, wrong.done, *(op.i for op in concurrent[-CONCURRENT_MAX:])),
    )


def _is_open_at(op: Op, row: int) -> bool:
    """Say whether an operation may still take effect, or show something, after a row."""
    if op.outcome is Kind.INFO:
        return op.f in _WRITES
    return op.is_ok and op.done > row


def _shown(op: Op) -> str:
    if op.f in _READS:
        return f"{op.f} -> {op.result}"
    return f"{op.f} {op.asked} ({op.outcome}{f', {op.err}' if op.err else ''})"
