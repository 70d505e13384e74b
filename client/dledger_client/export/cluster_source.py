"""A cluster as the log of an export. Owns: the hold, days by store time, what a trim means.

Everything else is `dledger_client.reading`: bounds that a quorum confirms, and ranges that are read
from one member after the other.
"""

import hashlib
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from dledger_client._wire import parse_addresses
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError
from dledger_client.export.layout import MS_PER_DAY, FrozenQueue, Piece, day_of
from dledger_client.export.records import Identity
from dledger_client.export.source import DataLost, FreezeRequest, Frozen
from dledger_client.reading import (
    Edge,
    Hold,
    HoldRequest,
    Origin,
    Planner,
    Range,
    RangeReader,
    ReadPlan,
)
from dledger_client.reading.plan import Estimate, QueueState

HOLD_MS: Final = 600_000
"""How long the log is kept for an export that says nothing; readers renew it."""
TIMES_PER_CALL: Final = 2_048
"""What a member looks up in one call, over all its queues."""
QUEUES_PER_CALL: Final = 1_024
DOUBLINGS: Final = 15
"""Days are looked for up to 2 ** 14, 44 years, around the present."""

_LOG: Final = logging.getLogger("dledger_client.export")


class ClusterSource:
    """The log of a cluster's topics. Use it in a `with`; `ranges()` outlives it."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        root: Path,
        config: ConnectionConfig | None = None,
        read_from: str = "follower",
    ) -> None:
        """`root` is the export's folder; its hold is named for it."""
        self._bootstrap = tuple(parse_addresses(bootstrap))
        self._config = config or ConnectionConfig()
        self._read_from = read_from
        digest = hashlib.sha256(str(root.absolute()).encode()).hexdigest()[:16]
        # One for each exporter: who is done ends its own, and nobody else's.
        self._hold = HoldRequest(f"export-{digest}-{os.urandom(4).hex()}", HOLD_MS)
        self._planner = Planner(self._bootstrap, self._config)
        self._ranges: ClusterRanges | None = None
        self._plan: ReadPlan | None = None

    def __enter__(self) -> Self:
        self._planner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            # A run that failed leaves a plan open, and what that names is still needed.
            if kind is None and self._plan is not None:
                self._planner.release(self._plan)
        except ClientError as failed:
            _LOG.debug("hold not released, it ends by itself: %s", failed)
        finally:
            self._planner.__exit__(kind, error, traceback)

    def freeze(self, request: FreezeRequest) -> Frozen:
        """Return what is committed, and hold it; ClientError when nobody can say."""
        topic = request.topic
        asked = (request.since_ms, request.until_ms, request.older_than_ms)
        times = sorted({each for each in asked if each is not None})
        before = self._states(topic, times)
        begins = {queue: _start(state, request) for queue, state in before.items()}
        # What is held must be there: what is trimmed already is the export's own error to tell.
        held = {
            queue: min(max(begins[queue], state.minimum), state.maximum)
            for queue, state in before.items()
        }
        plan = self._planner.freeze(
            [topic], Edge(offsets={topic: held}), Edge(), hold=self._hold, fail_on_data_loss=False
        )
        self._plan = plan
        now = {each.state.queue: each.state for each in plan.queues}
        ends = {
            queue: state.maximum
            if request.until_ms is None
            else before[queue].by_time[request.until_ms]
            for queue, state in now.items()
        }
        days = self._days(topic, begins, ends) if request.with_days else {}
        queues = tuple(
            FrozenQueue(
                queue, begins[queue], state.minimum, ends[queue], sizes_of(state),
                days.get(queue, ()),
            )
            for queue, state in sorted(now.items())
        )  # fmt: skip
        older = request.older_than_ms
        overdue = older is not None and any(
            before[queue].by_time[older] > begins[queue] for queue in now
        )
        topic_id = plan.queues[0].state.topic_id
        self._ranges = ClusterRanges(
            topic,
            topic_id,
            {queue: state.group for queue, state in now.items()},
            Origin(
                self._bootstrap, tuple(plan.groups.values()), self._read_from,
                fail_on_data_loss=False, connection=self._config,
            ),
            {queue: Hold(self._hold.owner, held[queue], HOLD_MS) for queue in now},
        )  # fmt: skip
        return Frozen(Identity(plan.cluster, topic, topic_id.hex()), queues, overdue)

    def ranges(self) -> "ClusterRanges":
        """Return who reads what was frozen last."""
        assert self._ranges is not None, "nothing is frozen"
        return self._ranges

    def _states(self, topic: str, times: Sequence[int]) -> dict[int, QueueState]:
        return {each.queue: each for each in self._planner.states([topic], times)}

    def _days(
        self, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> dict[int, tuple[tuple[int, str], ...]]:
        """Return, for each queue with something in it, the first offset of each UTC day."""
        moved = [queue for queue in starts if starts[queue] < ends[queue]]
        if not moved:
            return {}
        today = int(time.time() * 1_000) // MS_PER_DAY
        around = [today + sign * (1 << k) for sign in (-1, 1) for k in range(DOUBLINGS)]
        first, last = day_range(self._look(topic, [today, *around]), moved, starts, ends)
        looked = self._look(topic, range(first, last))
        return {
            queue: tuple((offsets[queue], day_of(day * MS_PER_DAY)) for day, offsets in looked)
            for queue in moved
        }

    def _look(self, topic: str, days: Iterable[int]) -> list[tuple[int, Mapping[int, int]]]:
        """Return, for each day, the first offset stored on or after it, by queue."""
        wanted = sorted({max(day, 0) for day in days})
        per_call = 1
        found: list[tuple[int, Mapping[int, int]]] = []
        while wanted:
            now, wanted = wanted[:per_call], wanted[per_call:]
            states = self._states(topic, [day * MS_PER_DAY for day in now])
            for day in now:
                at = {queue: state.by_time[day * MS_PER_DAY] for queue, state in states.items()}
                found.append((day, at))
            per_call = max(1, TIMES_PER_CALL // min(len(states), QUEUES_PER_CALL))
        return found


def day_range(
    looked: Sequence[tuple[int, Mapping[int, int]]],
    queues: Sequence[int],
    starts: Mapping[int, int],
    ends: Mapping[int, int],
) -> tuple[int, int]:
    """Return first day and the one after the last that ranges of these queues can lie in. Pure.

    `looked` is sorted by day; each has the first offset stored on or after it, by queue.
    """
    below = [day for day, at in looked if all(at[queue] <= starts[queue] for queue in queues)]
    above = [day for day, at in looked if all(at[queue] >= ends[queue] for queue in queues)]
    first = max(below, default=looked[0][0])
    last = min((day for day in above if day > first), default=looked[-1][0] + 1)
    return first, last


def sizes_of(state: QueueState) -> tuple[tuple[int, int], ...]:
    """Return the estimate of a queue's bytes as points between which it is even. Pure."""
    estimate = Estimate(state)
    middles = [(left.offset + right.offset) // 2 for left, right in pairwise(state.samples)]
    offsets = sorted({state.minimum, *middles, state.maximum})
    return tuple((offset, round(estimate.up_to(offset))) for offset in offsets)


def _start(state: QueueState, request: FreezeRequest) -> int:
    if state.queue in request.position:
        return request.position[state.queue]
    return state.minimum if request.since_ms is None else state.by_time[request.since_ms]


@dataclass(frozen=True, slots=True)
class ClusterRanges:
    """Ranges of a frozen topic. Pickles: connections are opened by each read."""

    topic: str
    topic_id: bytes
    groups: Mapping[int, str]
    origin: Origin
    holds: Mapping[int, Hold]

    def read(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield a range; DataLost when it is trimmed, ClientError when nobody brings it."""
        group = self.groups.get(piece.queue)
        if group is None:  # the topic has it no more
            raise DataLost(piece, piece.end)
        wanted = Range(
            self.topic, self.topic_id, piece.queue, group, piece.start, piece.end, piece.size
        )
        # Neighbours begin with different members.
        origin = replace(self.origin, rotation=piece.queue + piece.start)
        with RangeReader(origin, columns) as reader:
            for batch in reader.read(wanted, self.holds[piece.queue]):
                if reader.gaps:
                    raise DataLost(piece, reader.gaps[-1].end)
                yield batch
            if reader.gaps:
                raise DataLost(piece, reader.gaps[-1].end)
