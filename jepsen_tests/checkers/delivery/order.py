"""C28: ordered groups keep their order, one call at a time."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from jepsen_tests.checkers.delivery.calls import (
    CONCURRENT,
    Call,
    by_queue,
    calls_of,
    rows_of,
)
from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.view import View, grouped
from jepsen_tests.history.events import order_key_of

OF_KEY: Final = "key"


def delivery_order(view: View) -> Judgement:
    """C28. In an ordered group one call goes on in a queue, or for a key, and in their order.

    A call for a record begins when the group has finished with all before it in the queue, or of
    its key. No two calls go on at once. And once a consumer with a higher epoch has a queue, no
    consumer with a lower one begins a call there.
    """
    judgement = Judgement("C28")
    calls = [call for call in calls_of(view) if call.order != CONCURRENT]
    judgement.facts["looked_at"] = len(calls)
    for (group, place), mine in by_queue(calls).items():
        _holders(judgement, group, mine)
        chains = grouped(mine, _chain_of)
        for chain in chains.values():
            _at_once(judgement, group, chain)
        if not mine[0].is_again:
            for key, chain in chains.items():
                _in_order(view, judgement, (group, place, key), chain)
    return judgement


def _chain_of(call: Call) -> str:
    """Return which calls of a queue must not go on at once: those of a key, or all."""
    return order_key_of(call.value) if call.order == OF_KEY else ""


def _holders(judgement: Judgement, group: str, calls: list[Call]) -> None:
    newest = calls[0]
    for call in calls:
        if call.epoch < newest.epoch:
            judgement.add(
                "two-holders",
                f"{group}: {call.text} began with epoch {call.epoch} after {newest.consumer} had "
                f"begun with epoch {newest.epoch}",
                (*newest.rows, *call.rows),
            )
        else:
            newest = call


def _at_once(judgement: Judgement, group: str, calls: list[Call]) -> None:
    for before, call in pairwise(calls):
        if call.begun < before.ended:
            judgement.add(
                "at-once",
                f"{group}: {call.text} began while the call for offset {before.read_offset} at "
                f"{before.consumer} went on",
                rows_of((before, call)),
            )


def _in_order(
    view: View, judgement: Judgement, chain: tuple[str, str, str], calls: list[Call]
) -> None:
    """Compare calls with what stands in the log."""
    group, place, key = chain
    of_key = calls[0].order == OF_KEY
    log = view.log.places[place]
    known: Iterable[int] = (
        offset
        for offset, spot in log.spots.items()
        if offset >= log.floor and (not of_key or order_key_of(spot.value) == key)
    )
    waiting = sorted({*known, *(call.read_offset for call in calls)})
    steps = sorted(
        [(call.begun, 1, call) for call in calls]
        + [(call.ended, 0, call) for call in calls if call.finishes],
        key=lambda step: step[:2],
    )
    finished: set[int] = set()
    at = 0
    for _, is_begin, call in steps:
        if not is_begin:
            finished.add(call.read_offset)
            while at < len(waiting) and waiting[at] in finished:
                at += 1
        elif at < len(waiting) and call.read_offset > waiting[at]:
            of = f" of key {key}" if key else ""
            judgement.add(
                "out-of-order",
                f"{group}: {call.text} began before the group had finished with offset "
                f"{waiting[at]}{of}",
                call.rows,
            )
