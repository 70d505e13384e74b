"""Makes the text of a scrape from what sources say now, without standing in the loop's way.

Owns: when sources are asked, and for how long at a time. Not: what they say (`series.py` and the
sources), who asks (`port.py`), the format (`prometheus_client`).

All of it runs on the loop, because it reads live state, and in slices: the loop gets a turn
whenever SLICE_SECONDS are used. A thread for the text would gain nothing: it and the loop would
take turns at the interpreter. A scrape that comes while another is under way gets the other's text:
however many ask, the process pays for one at a time.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dledger_monitoring.series import Sheet

SLICE_SECONDS: Final = 0.002
"""So long a scrape may hold the loop."""
SAMPLES_A_STEP: Final = 64
"""Lines that are written at once: less than a millisecond."""

Source = Callable[[Sheet], Iterator[None]]
"""Writes values. It yields where the loop may have its turn, at least each millisecond."""


class Exposition(Collector):
    """The series of one process, with a registry of its own."""

    def __init__(
        self, common: Mapping[str, str], sources: Sequence[Source], clock: Callable[[], float]
    ) -> None:
        """`common`: the labels of all series. `clock`: monotonic seconds."""
        self._common = common
        self._sources = sources
        self._clock = clock
        self._sheet = Sheet(common)
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._registry.register(self)
        self._scrape: asyncio.Task[bytes] | None = None

    def collect(self) -> Iterable[Metric]:
        """Return what the sources said last; for the registry."""
        return self._sheet.families()

    async def text(self) -> bytes:
        """Return the text of a scrape; raises what a source raises."""
        scrape = self._scrape
        if scrape is None or scrape.done():
            scrape = asyncio.get_running_loop().create_task(self._make(), name="scrape")
            self._scrape = scrape
        return await asyncio.shield(scrape)

    async def _make(self) -> bytes:
        parts: list[bytes] = []
        began = self._clock()
        for _ in self._steps(parts):
            if self._clock() - began > SLICE_SECONDS:
                await asyncio.sleep(0)
                began = self._clock()
        return b"".join(parts)

    def _steps(self, parts: list[bytes]) -> Iterator[None]:
        """Ask all sources, then write the text; yield between two steps."""
        sheet = Sheet(self._common)
        for source in self._sources:
            yield from source(sheet)
        self._sheet = sheet
        for family in self._registry.collect():
            for part in written(family):
                parts.append(part)
                yield
        self._sheet = Sheet(self._common)  # or the collector would find all values alive

    def close(self) -> None:
        """End a scrape that is under way."""
        if self._scrape is not None:
            self._scrape.cancel()


def written(family: Metric) -> Iterator[bytes]:
    """Yield the text of a family, some lines at a time."""
    for at in range(0, len(family.samples), SAMPLES_A_STEP):
        part = copy(family)
        part.samples = family.samples[at : at + SAMPLES_A_STEP]
        text = generate_latest(_Alone(part))
        # Meaning and type are said once.
        yield text.split(b"\n", 2)[2] if at else text


@dataclass(frozen=True, slots=True)
class _Alone(Collector):
    """A collector of one family."""

    family: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.family,)
