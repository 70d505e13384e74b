"""C24: no trim passes a hold that lasts, and what is held can be read."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Final

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.view import View, grouped
from jepsen_tests.history.events import NEVER, Op

MS: Final = 1_000_000
LASTS_MS: Final = 600_000
"""A hold lasts so long, or its own time, whatever the clocks do (D8)."""
JUMP_MS: Final = 62_000
"""Less this: a jump of the majority by a minute is followed at once, and stamps of two leaders are
within a second of the majority each."""
REPEAT_MS: Final = 10_000
"""Twice the budget of a call: no copy of it takes effect later."""
GONE: Final = ("OFFSET_OUT_OF_RANGE", "HEAD_TRIMMED", "NOT_FOUND")
"""How a read of a record that was trimmed fails."""
_HOLDER: Final = re.compile(r"(\S+) holds the queue\b")
"""Whom a refused trim names."""


@dataclass(frozen=True, slots=True)
class Held:
    """A hold that was acknowledged, and until when it certainly lasts."""

    op: Op
    until_row: int
    """It lasts in all rows before this one by the store times of what was sent later."""
    until_ns: int
    """It lasts before this time, whatever the clocks do."""
    ended_row: int
    """Its owner renewed or released it in this row, or tried to."""

    @property
    def offset(self) -> int:
        """From this one on records are kept."""
        offset: int = self.op.asked["offset"]
        return offset

    def lasts_in(self, op: Op) -> bool:
        """Say whether it certainly lasted when an operation was over."""
        return op.done < self.ended_row and (op.done < self.until_row or op.ended < self.until_ns)


def holds(view: View) -> Judgement:
    """C24. A minimum that is told while a hold lasts is not above the offset of that hold.

    Until when a hold lasts is a store time. Store times never go back, so a hold lasts in every row
    before a send that was stored before the end of the hold. It also lasts for ten minutes, or its
    own time when that is less, but for the minute by which clocks may jump at once. An owner's next
    hold or release takes its place. A record that was known to stand at or above the offset is
    found as long as the hold lasts. A trim is refused as held only if a hold of the owner that
    it names may last.
    """
    judgement = Judgement("C24")
    stamped = _stamped(view)
    held = grouped(_certain(view, stamped), lambda each: each.op.k)
    seen = 0
    for op in view.ops("trim", "bounds"):
        if op.is_ok:
            minimum = op.result if op.f == "trim" else op.result[0]
            for each in held.get(op.k, ()):
                seen += 1
                if minimum > each.offset and each.lasts_in(op):
                    _passed(judgement, each, op, minimum)
    for op in view.ops("lookup"):
        if op.err.startswith(GONE) or (op.is_ok and not op.result):
            _unreadable(view, judgement, op, held.get(op.k, []))
    _refused(view, judgement, stamped)
    kept = sum(map(len, held.values()))
    judgement.facts |= {"looked_at": seen, "holds": kept}
    return judgement


def _stamped(view: View) -> list[tuple[int, Op]]:
    """Return the sends whose store time is known, with that time, in order of times.

    No resend: what it sends may have been stored before it began.
    """
    found: list[tuple[int, Op]] = []
    for op in view.ops("send"):
        if op.is_ok and op.result[0] is not None:
            stamp = view.stamps.at(op.k, op.result[0])
            if stamp is not None:
                found.append((stamp.time_ms, op))
    return sorted(found, key=itemgetter(0))


def _certain(view: View, stamped: list[tuple[int, Op]]) -> Iterator[Held]:
    times = [time_ms for time_ms, _ in stamped]
    latest = list(accumulate((op.i for _, op in stamped), max))
    changes: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for op in view.ops("hold", "release"):
        if not op.is_failed:
            changes[op.k, owner_of(op)].append(op.i)
    for op in view.ops("hold"):
        if op.is_ok:
            before = bisect_left(times, op.result)
            rows = changes[op.k, owner_of(op)]
            following = bisect_left(rows, op.i + 1)
            lasts_ms = min(op.asked["ttl_ms"], LASTS_MS) - JUMP_MS
            yield Held(
                op,
                latest[before - 1] if before else 0,
                op.began + lasts_ms * MS,
                rows[following] if following < len(rows) else NEVER,
            )


def owner_of(op: Op) -> str:
    """Return whose hold a hold or release is about."""
    owner: str = op.asked["owner"] if op.f == "hold" else op.asked
    return owner


def _passed(judgement: Judgement, held: Held, op: Op, minimum: int) -> None:
    judgement.add(
        "hold-passed",
        f"{op.k}: the minimum is {minimum}, though {owner_of(held.op)} holds the queue from offset "
        f"{held.offset} on, until {held.op.result} ms",
        (held.op.i, held.op.done, op.i, op.done),
    )


def _unreadable(view: View, judgement: Judgement, op: Op, held: list[Held]) -> None:
    spot = view.log.places[op.k].spots.get(op.asked)
    if spot is None or min(spot.row, spot.read_row or spot.row) > op.i:
        return
    for each in held:
        if each.offset <= op.asked and each.lasts_in(op):
            judgement.add(
                "held-unreadable",
                f"{op.k}: {spot.value} at offset {op.asked} was not found ({op.err or 'nothing'}), "
                f"though {owner_of(each.op)} holds the queue from offset {each.offset} on",
                (each.op.i, each.op.done, op.i, op.done),
            )
            return


def _refused(view: View, judgement: Judgement, stamped: list[tuple[int, Op]]) -> None:
    """Name trims that were refused as held when no hold of that owner can have lasted any more.

    Where no client placed a hold, holds are placed by others (exports), who do not show them.
    """
    if not view.ops("hold"):
        return
    released: defaultdict[tuple[str, str], list[Op]] = defaultdict(list)
    for op in view.ops("release"):
        if op.is_ok:
            released[op.k, owner_of(op)].append(op)
    holding = grouped(view.ops("hold"), lambda op: op.k)
    for trim in view.ops("trim"):
        if not trim.err.startswith("HELD"):
            continue
        now_ms = max((ms for ms, op in stamped if op.done < trim.i), default=0)
        named = _HOLDER.search(trim.err)
        if not any(
            _may_last(op, trim, now_ms, released[op.k, owner_of(op)])
            for op in holding.get(trim.k, ())
            if named is None or owner_of(op) == named[1]
        ):
            judgement.add(
                "held-by-nobody",
                f"{trim.k}: a trim to {trim.asked} was refused ({trim.err}), though no such hold "
                "can have lasted",
                (trim.i, trim.done),
            )


def _may_last(op: Op, trim: Op, now_ms: int, released: Iterable[Op]) -> bool:
    """Say whether a hold may have lasted when a trim was refused.

    The client repeats calls, so a copy of the hold may have taken effect a little later.
    """
    if op.i > trim.done or op.is_failed:
        return False
    if not op.is_ok:
        return True
    is_over = op.result + REPEAT_MS <= now_ms
    return not is_over and not any(
        op.done < end.i and end.ended + REPEAT_MS * MS < trim.began for end in released
    )
