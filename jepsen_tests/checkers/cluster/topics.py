"""C26: in the end all broker groups have the same topics."""

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import Op


def same_topics(view: View) -> Judgement:
    """C26. What members last said of the topics of their groups is the same: names and ids.

    The control group decides which topics there are, and the other groups follow it. A run asks
    again until all agree, or until its patience ends.
    """
    judgement = Judgement("C26")
    last: dict[str, Op] = {op.node: op for op in view.ops("topics") if op.is_ok}
    told = [last[node] for node in view.header.nodes if node in last]
    for op in told[1:]:
        first = told[0]
        names = sorted({*first.result, *op.result})
        differing = [name for name in names if first.result.get(name) != op.result.get(name)]
        if differing:
            judgement.add(
                "other-topics",
                f"in the end {first.node} and {op.node} differ in {', '.join(differing)}",
                (first.i, first.done, op.i, op.done),
            )
    judgement.facts["looked_at"] = len(told)
    return judgement
