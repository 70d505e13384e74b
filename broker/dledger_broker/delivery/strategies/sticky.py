"""Sticky: the most even deal that moves the fewest queues. Pure.

Each consumer may have `n // c` queues, and `n mod c` consumers one more: first those that hold more
than that, since each of them then keeps one more. A consumer keeps what it holds, up to its number.
The other queues go to consumers that have too few. All choices prefer the deal of the time before,
so that a deal that is being carried out is dealt again, as by a new leader.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from dledger_broker.delivery.strategies.model import Consumer, Dealt, Queue, Standing, nothing


def sticky(
    queues: Sequence[Queue], consumers: Sequence[Consumer], now: Mapping[Queue, Standing]
) -> Dealt:
    """Deal the queues evenly, and move as few as that takes."""
    held = nothing(consumers)
    for queue in queues:
        standing = now.get(queue)
        if standing is not None and standing.holder in held:
            held[standing.holder].append(queue)
    size, more = divmod(len(queues), len(consumers))
    aimed = Counter(now[queue].target for queue in queues if queue in now)
    first = sorted(held, key=lambda name: (len(held[name]) <= size, -aimed[name]))
    room = {name: size + (place < more) for place, name in enumerate(first)}
    dealt = nothing(consumers)
    for name, some in held.items():
        some.sort(key=lambda queue: now[queue].target != name)
        dealt[name] = some[: room[name]]
    kept = {queue for some in dealt.values() for queue in some}
    pool: deque[Queue] = deque()
    for queue in queues:
        if queue in kept:
            continue
        target = now[queue].target if queue in now else ""
        if target in dealt and len(dealt[target]) < room[target]:
            dealt[target].append(queue)
        else:
            pool.append(queue)
    while pool:  # one after the other: the queues of one topic go to several consumers
        for name, some in dealt.items():
            if pool and len(some) < room[name]:
                some.append(pool.popleft())
    return dealt
