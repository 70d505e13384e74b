"""A cluster as the log of an export. Owns: the hold, days by store time, what a trim means.

Everything else is `dledger_client.reading`: bounds that a quorum confirms, and ranges that are read
from one member after the other.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

import pyarrow as pa

from dledger_client._shell.wire import parse_addresses
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError
from dledger_client.export.errors import ExportError
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.holder import Holder
from dledger_client.export.layout import MS_PER_DAY, FrozenQueue, Piece, day_of
from dledger_client.export.manifests import history
from dledger_client.export.manifests.records import Identity
from dledger_client.export.source import (
    Compacted,
    DataLost,
    FreezeRequest,
    FrozenLog,
    RangeUnreadable,
)
from dledger_client.reading import (
    Edge,
    Hold,
    HoldRequest,
    Keeper,
    Origin,
    Planner,
    Range,
    RangeReader,
    ReadPlan,
    Trimmed,
)
from dledger_client.reading.plan import Estimate, QueueState
from dledger_client.unreadable import Unreadable
from dledger_proto.limits import LOOKS_PER_CALL_MAX, QUEUES_PER_CALL_MAX, TIME_MS_MAX

HOLD_MS: Final = 600_000
"""How long a hold lasts that the export does not renew."""
DAY_MAX: Final = TIME_MS_MAX // MS_PER_DAY
"""The last day that a store time may have, in days since 1970."""
DOUBLINGS: Final = 15
"""Days that are looked at first on both sides of today, each twice as far as the one before."""
DAYS_AT_ONCE: Final = 16
"""So few days are all looked at; more are narrowed down first."""

_LOG: Final = logging.getLogger("dledger_client.export")


class ClusterSource:
    """The log of a cluster's topics. Use it in a `with`; `ranges()` outlives it."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        root: Path,
        config: ConnectionConfig | None = None,
        read_from: str = "follower",
        *,
        is_exporter: bool = True,
    ) -> None:
        """`root` is the export's folder; names of holds lie in it (`holder.py`).

        Without `is_exporter` the name is drawn. With the name of an exporter that died, this source
        would release what the plan that the exporter left open needs.
        """
        self._bootstrap = tuple(parse_addresses(bootstrap))
        self._config = config or ConnectionConfig()
        self._read_from = read_from
        self._storage = ExportStorage(root)
        self._is_exporter = is_exporter
        self._holder: Holder | None = None
        self._planner = Planner(self._bootstrap, self._config)
        # A run may take longer than its hold lasts, and --watch may look only once an hour.
        self._keeper = Keeper(self._planner.renew, HOLD_MS)
        self._ranges: ClusterRanges | None = None
        self._plan: ReadPlan | None = None

    def __enter__(self) -> Self:
        self._planner.__enter__()
        self._holder = Holder(self._storage if self._is_exporter else None)
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        self._keeper.close()
        try:
            # A run that failed may leave a plan open, and what that names is still needed.
            if self._plan is not None and (kind is None or not self._is_plan_open()):
                self._planner.release(self._plan)
        except ClientError as failed:
            _LOG.debug("the hold was not released and ends by itself: %s", failed)
        finally:
            if self._holder is not None:
                self._holder.close()
            self._planner.__exit__()

    def _is_plan_open(self) -> bool:
        try:
            number = history.last_number(self._storage) + 1
            return history.open_plan(self._storage, number) is not None
        except (ExportError, OSError):
            return True  # the hold stays where nobody can tell

    def freeze(self, request: FreezeRequest) -> FrozenLog:
        """Return what is committed, and hold it; ClientError when nobody can say."""
        assert self._holder is not None, "used in a `with`"
        hold = HoldRequest(f"export-{self._holder.name}", HOLD_MS)
        topic = request.topic
        asked = (request.since_ms, request.until_ms, request.older_than_ms)
        times = sorted({each for each in asked if each is not None})
        before = self._states(topic, times)
        # Hold only what is there. The export itself tells of records that are trimmed already.
        held = {
            queue: min(max(_begin(request, state, state), state.minimum), state.maximum)
            for queue, state in before.items()
        }
        # Queues that appear after this look are left to the next run.
        plan = self._keeper.keep(
            lambda: self._planner.freeze(
                [topic], Edge(offsets={topic: held}), Edge(), hold=hold,
                fail_on_data_loss=False, only=[(topic, queue) for queue in held],
            )
        )  # fmt: skip
        self._plan = plan
        now = {each.state.queue: each.state for each in plan.queues}
        # By the bounds as of now: a trim may have come in between.
        begins = {queue: _begin(request, before[queue], state) for queue, state in now.items()}
        ends = {
            queue: state.maximum
            if request.until_ms is None
            else before[queue].by_time[request.until_ms]
            for queue, state in now.items()
        }
        days: dict[int, tuple[tuple[int, str], ...]] = {}
        if request.with_days:
            starts = {queue: max(begins[queue], state.minimum) for queue, state in now.items()}
            days = self._days(topic, starts, ends)
        queues = tuple(
            FrozenQueue(
                queue, begins[queue], state.minimum, ends[queue], state.maximum,
                sizes_of(state), days.get(queue, ()),
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
                fail_on_data_loss=False, connection=self._config, fail_on_unreadable=False,
            ),
            {queue: hold for (_, queue), hold in plan.holds.items()},
        )  # fmt: skip
        return FrozenLog(Identity(plan.cluster, topic, topic_id.hex()), queues, overdue)

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
        looked: dict[int, Mapping[int, int]] = {}
        first, last, wanted = 0, 0, guesses(today)
        while wanted:
            looked |= self._look(topic, wanted)
            first, last, wanted = narrow(looked, moved, starts, ends)
        looked |= self._look(topic, [day for day in range(first, last) if day not in looked])
        return {
            queue: tuple(
                (looked[day][queue], day_of(day * MS_PER_DAY)) for day in range(first, last)
            )
            for queue in moved
        }

    def _look(self, topic: str, days: Iterable[int]) -> dict[int, Mapping[int, int]]:
        """Return, for each day, the first offset stored on or after it, by queue."""
        wanted = sorted(set(days))
        per_call = 1
        found: dict[int, Mapping[int, int]] = {}
        while wanted:
            now, wanted = wanted[:per_call], wanted[per_call:]
            states = self._states(topic, [day * MS_PER_DAY for day in now])
            for day in now:
                time_ms = day * MS_PER_DAY
                found[day] = {queue: state.by_time[time_ms] for queue, state in states.items()}
            per_call = max(1, LOOKS_PER_CALL_MAX // min(len(states), QUEUES_PER_CALL_MAX))
        return found


def guesses(today: int) -> list[int]:
    """Return days to look at first. Pure.

    They are denser near `today`. The clock of this process decides nothing else: the members'
    clocks made the store times, so the first and the last possible day are among the guesses.
    """
    around = [today + sign * (1 << k) for sign in (-1, 1) for k in range(DOUBLINGS)]
    return sorted({0, DAY_MAX, *(min(max(day, 0), DAY_MAX) for day in (today, *around))})


def narrow(
    looked: Mapping[int, Mapping[int, int]],
    queues: Sequence[int],
    starts: Mapping[int, int],
    ends: Mapping[int, int],
) -> tuple[int, int, list[int]]:
    """Return first day, the one after the last that ranges of these queues can lie in. Pure.

    `looked` has, for each day, the first offset stored on or after it, by queue; 0 and DAY_MAX are
    in it. With that come days to look at before the range is worth being looked at day by day.
    """
    days = sorted(looked)
    below = [day for day in days if all(looked[day][each] <= starts[each] for each in queues)]
    above = [day for day in days if all(looked[day][each] >= ends[each] for each in queues)]
    assert below, "nothing is stored before 1970"
    first = below[-1]
    last = min((day for day in above if day > first), default=DAY_MAX + 1)
    after = next((day for day in days if day > first), last)
    before = max(day for day in days if day < last)
    wide = max(DAYS_AT_ONCE, before - after)
    wanted = {
        day
        for low, high in ((first, after), (before, last))
        if high - low > wide
        for day in range(low, high, -(-(high - low) // DAYS_AT_ONCE))
    }
    return first, last, sorted(wanted - looked.keys())


def sizes_of(state: QueueState) -> tuple[tuple[int, int], ...]:
    """Return the estimate of a queue's bytes as points between which it is even. Pure."""
    estimate = Estimate(state)
    middles = [(left.offset + right.offset) // 2 for left, right in pairwise(state.samples)]
    offsets = sorted({state.minimum, *middles, state.maximum})
    return tuple((offset, round(estimate.up_to(offset))) for offset in offsets)


def _begin(request: FreezeRequest, asked: QueueState, now: QueueState) -> int:
    """Return `FreezeRequest.begin` of a queue; `asked` is what was said of the times."""
    since = 0 if request.since_ms is None else asked.by_time[request.since_ms]
    return request.begin(now.queue, now.minimum, since)


@dataclass(frozen=True, slots=True)
class ClusterRanges:
    """Ranges of a frozen topic. Pickles: connections are opened by each read."""

    topic: str
    topic_id: bytes
    groups: Mapping[int, str]
    origin: Origin
    holds: Mapping[int, Hold]

    def read(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch | Compacted]:
        """Yield a range as `RangeSource` says; ClientError when nobody brings it."""
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
                    raise _missed(piece, reader.gaps)
                yield batch
            if reader.gaps:
                raise _missed(piece, reader.gaps)
            if reader.compacted:
                yield Compacted(reader.compacted)


def _missed(piece: Piece, gaps: Sequence[Trimmed | Unreadable]) -> DataLost | RangeUnreadable:
    """Return what became of records that were passed over, up to the first that were not."""
    what = gaps[0]
    if isinstance(what, Trimmed):
        return DataLost(piece, what.end)
    for gap in gaps[1:]:
        if isinstance(gap, Trimmed) or gap.start != what.end:
            break
        what = replace(what, end=gap.end)
    return RangeUnreadable(piece, what)
