"""C29: failures are counted right; dead letters are there once, and are sent again once."""

from collections import Counter, defaultdict

from jepsen_tests.checkers.delivery.calls import (
    CONCURRENT,
    DEAD,
    FAILED,
    Call,
    Record,
    by_record,
    calls_of,
    rows_of,
)
from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import Op


def attempts(view: View) -> Judgement:
    """C29. Attempts count failures; a failure makes one retry; a dead letter is there once.

    A call is told how often its record failed: never more often than calls failed or were broken
    off before, and in an ordered group never less often than an earlier call was told. A record
    fails for the n-th time once, so its n-th retry is read at one place only. Who sends dead
    letters again does so at most once for each, so that each comes back at one place only.
    """
    judgement = Judgement("C29")
    records = by_record(calls_of(view))
    letters = [op for op in view.ops("letters") if op.is_ok]
    judgement.facts |= {
        "looked_at": sum(map(len, records.values())),
        "letters": sum(len(op.result) for op in letters),
    }
    for record, calls in records.items():
        _counted(judgement, record, calls)
        _retried(judgement, record, calls)
    for op in letters:
        _letters(judgement, op, records)
    return judgement


def _counted(judgement: Judgement, record: Record, calls: list[Call]) -> None:
    told: dict[str, Call] = {}
    for place, call in enumerate(calls):
        failed = [
            each
            for each in calls[:place]
            if each.said == "" or (each.said in (FAILED, DEAD) and each.ended <= call.begun)
        ]
        before = told.get(call.read, call)
        if call.attempts > len(failed):
            judgement.add(
                "wrong-attempts",
                f"{record[0]}: {call.text} was told of {call.attempts} failures, but only "
                f"{len(failed)} calls can have failed before",
                (*call.rows, *rows_of(failed)),
            )
        elif call.order != CONCURRENT and call.attempts < before.attempts:
            judgement.add(
                "wrong-attempts",
                f"{record[0]}: {call.text} was told of {call.attempts} failures, and an earlier "
                f"call of {before.attempts}",
                (*before.rows, *call.rows),
            )
        told[call.read] = call


def _retried(judgement: Judgement, record: Record, calls: list[Call]) -> None:
    """Look for copies in the retry topic beyond one for each failure, and each time sent again."""
    copies: defaultdict[int, dict[tuple[str, int], Call]] = defaultdict(dict)
    for call in calls:
        if call.is_again:
            copies[call.attempts].setdefault((call.read, call.read_offset), call)
    sent_again = copies.pop(0, {})
    if len(sent_again) > 1:
        judgement.add(
            "resent-twice",
            f"{record[0]}: the dead letter {record[1]} offset {record[2]} came back "
            f"{len(sent_again)} times",
            rows_of(sent_again.values()),
        )
    for number, found in copies.items():
        if len(found) > 1 + len(sent_again):
            judgement.add(
                "retried-twice",
                f"{record[0]}: {record[1]} offset {record[2]} came {len(found)} times as the retry "
                f"after failure {number}",
                rows_of(found.values()),
            )


def _letters(judgement: Judgement, op: Op, records: dict[Record, list[Call]]) -> None:
    there = Counter((place, offset, resent) for place, offset, _, resent in op.result)
    for (place, offset, _), count in there.items():
        if count > 1:
            judgement.add(
                "died-twice",
                f"{op.k}: {place} offset {offset} is in the dead letters {count} times",
                (op.i, op.done),
            )
    for place, offset, failures, _ in op.result:
        calls = records.get((op.k, place, offset), [])
        failed = [call for call in calls if call.said in (FAILED, DEAD, "")]
        if all(call.said == FAILED for call in failed):
            judgement.add(
                "died-early",
                f"{op.k}: {place} offset {offset} is in the dead letters after {len(failed)} "
                "failures, of which none was the last",
                (op.i, op.done, *rows_of(failed)),
            )
        elif failures > len(failed):
            judgement.add(
                "wrong-attempts",
                f"{op.k}: {place} offset {offset} is in the dead letters with {failures} failures, "
                f"but only {len(failed)} calls can have failed",
                (op.i, op.done, *rows_of(failed)),
            )
