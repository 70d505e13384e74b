"""A scrape: in slices, one at a time, whole."""

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from dledger_monitoring.exposition import SAMPLES_A_STEP, SLICE_SECONDS, Exposition
from dledger_monitoring.series import Sheet, gauge

VALUE = gauge("a_value", "A value.", "number")


class Clock:
    """Each look takes as long as the test says."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self.seconds = seconds

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


class Source:
    def __init__(self, count: int) -> None:
        self.count = count
        self.asked = 0

    def collect(self, sheet: Sheet) -> Iterator[None]:
        self.asked += 1
        for number in range(self.count):
            sheet.put(VALUE, number, str(number))
            yield


async def turns_during(exposition: Exposition) -> tuple[int, bytes]:
    """Return how many turns the loop had while a scrape was made, and its text."""
    turns, text = 0, asyncio.ensure_future(exposition.text())
    while not text.done():
        turns += 1
        await asyncio.sleep(0)
    return turns, await text


def families(text: bytes) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for family in text_string_to_metric_families(text.decode()):
        assert family.name not in found, f"{family.name} begins twice"
        found[family.name] = family
    return found


def test_the_loop_has_a_turn_whenever_a_slice_is_used() -> None:
    async def turns(seconds: float) -> int:
        exposition = Exposition({}, [Source(1_000).collect], Clock(seconds))
        return (await turns_during(exposition))[0]

    assert asyncio.run(turns(0.0)) < 10
    assert asyncio.run(turns(2 * SLICE_SECONDS)) > 1_000


@pytest.mark.parametrize("count", [1, SAMPLES_A_STEP, SAMPLES_A_STEP + 1, 1_000])
def test_a_family_that_is_written_in_steps_is_one_family(count: int) -> None:
    async def scrape() -> bytes:
        return await Exposition({"node": "n1"}, [Source(count).collect], Clock(1.0)).text()

    text = asyncio.run(scrape())
    assert text.count(b"# TYPE a_value gauge\n") == 1
    samples = families(text)["a_value"].samples
    assert [sample.value for sample in samples] == list(range(count))
    assert samples[-1].labels == {"node": "n1", "number": str(count - 1)}


def test_scrapes_at_once_share_one() -> None:
    async def run() -> None:
        source = Source(100)
        exposition = Exposition({}, [source.collect], Clock(1.0))
        texts = await asyncio.gather(*(exposition.text() for _ in range(10)))
        assert source.asked == 1
        assert len(set(texts)) == 1
        await exposition.text()
        assert source.asked == 2

    asyncio.run(run())


def test_one_who_asks_and_leaves_takes_nothing_from_the_others() -> None:
    async def run() -> None:
        exposition = Exposition({}, [Source(100).collect], Clock(1.0))
        leaves = asyncio.ensure_future(exposition.text())
        stays = asyncio.ensure_future(exposition.text())
        await asyncio.sleep(0)
        leaves.cancel()
        assert b"a_value" in await stays

    asyncio.run(run())


def test_each_process_object_has_its_own_series() -> None:
    async def run() -> None:
        one = Exposition({"node": "one"}, [Source(1).collect], Clock(0.0))
        other = Exposition({"node": "other"}, [], Clock(0.0))
        assert "a_value" in families(await one.text())
        assert "a_value" not in families(await other.text())
        assert "process_resident_memory_bytes" in families(await other.text())

    asyncio.run(run())


def test_what_a_source_raises_is_told_and_the_next_scrape_is_another() -> None:
    failures = [OSError("disk")]

    def source(_sheet: Sheet) -> Iterator[None]:
        if failures:
            raise failures.pop()
        yield

    async def run() -> None:
        exposition = Exposition({}, [source], Clock(0.0))
        with pytest.raises(OSError, match="disk"):
            await exposition.text()
        assert await exposition.text()

    asyncio.run(run())
