"""What consumer groups have to do: lag, dead letters, pauses; of a leader alone.

A follower may be behind, and the same numbers from three members are no help. So the series go when
leadership goes, and come with it.

Owns: the sum over the queues of a topic, and the bounds of a scrape. Not: what lag is
(`dledger.state.progress.lag`).
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

from dledger.state.progress.lag import Lag
from dledger.state.values import Topic
from dledger_broker.group.group_view import GroupView
from dledger_broker.metrics import catalogue as series
from dledger_broker.metrics.cut import NO, YES, cut
from dledger_monitoring.series import Sheet
from dledger_proto.errors import DledgerError
from dledger_proto.names import RETRY_TOPIC_PREFIX

ROWS_A_STEP: Final = 32
"""Rows of progress that are read at once: about a millisecond."""
SERIES_A_STEP: Final = 64
"""Pairs whose series are written at once."""
ROWS_READ_MAX: Final = 65_536
"""Of one scrape: queues times consumer groups. What lies behind is left out, and counted as one."""


@dataclass(slots=True)
class _Sum:
    """The lag of one consumer group in one topic."""

    waiting: int = 0
    ready: int = 0
    oldest_ms: int = 0
    lost: int = 0

    def add(self, lag: Lag) -> None:
        self.waiting += lag.waiting
        self.ready += max(lag.waiting - lag.suspended, 0)
        self.lost += lag.lost
        if lag.oldest_ms and (not self.oldest_ms or lag.oldest_ms < self.oldest_ms):
            self.oldest_ms = lag.oldest_ms


class Consumers:
    """The series of one group's consumer groups."""

    def __init__(self, view: GroupView, series_max: int) -> None:
        self._view = view
        self._series_max = series_max

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write all values; see `exposition.Source`."""
        if not self._view.leads:
            return
        left_out = yield from self._lags(sheet)
        sheet.put(series.LEFT_OUT, left_out, self._view.names.group, "lags")
        groups = self._view.machine.queries.consumer_groups()
        chosen, left_out = cut(groups, self._series_max)
        sheet.put(series.LEFT_OUT, left_out, self._view.names.group, "consumer groups")
        yield
        for topic in chosen:
            self._group(sheet, topic)
            yield

    def _lags(self, sheet: Sheet) -> Generator[None, None, int]:
        """Write the lags; return how many pairs are left out."""
        view, broker_group = self._view, self._view.names.group
        sums: dict[tuple[str, str], _Sum] = {}
        beyond: set[tuple[str, str]] = set()
        place, read = b"", 0
        while True:
            page, place = view.machine.lags.page(place, ROWS_A_STEP, view.now_ms)
            for lag in page:
                key = lag.name, lag.topic.name
                if key in sums or len(sums) < self._series_max:
                    sums.setdefault(key, _Sum()).add(lag)
                else:
                    beyond.add(key)
            read += ROWS_A_STEP
            yield
            if not place or read >= ROWS_READ_MAX:
                break
        for at, ((name, topic), found) in enumerate(sums.items()):
            if at % SERIES_A_STEP == 0:
                yield
            is_retry = YES if topic.startswith(RETRY_TOPIC_PREFIX) else NO
            labels = broker_group, name, topic, is_retry
            since_ms = max(view.now_ms - found.oldest_ms, 0) if found.oldest_ms else 0
            sheet.put(series.LAG, found.waiting, *labels)
            sheet.put(series.LAG_LATENCY, since_ms, *labels)
            sheet.put(series.READY_MESSAGES, found.ready, *labels)
            sheet.put(series.LOST, found.lost, *labels)
        return len(beyond) + bool(place)

    def _group(self, sheet: Sheet, topic: Topic) -> None:
        view, queries = self._view, self._view.machine.queries
        assert topic.consumer_group is not None, f"{topic.name} is no consumer group"
        name = topic.name.removeprefix(RETRY_TOPIC_PREFIX)
        labels = view.names.group, name
        sheet.put(series.PAUSED, queries.pause_of(name) is not None, *labels)
        try:
            found = view.machine.lags.dead_letters(name)
        except DledgerError:
            return  # this broker group holds none of its dead letters
        sheet.put(series.TO_DEAD_LETTERS, found[0], *labels)
        sheet.put(series.DEAD_LETTERS, found[1], *labels)
