"""What metrics cost: the processor time of a page, for as many topics as have series of their own.

Counting is always on; it is part of every other figure. So the cost is that of a page, as often as
somebody asks. Rounds of appends with and without scrapes differ by far more than that.
"""

import asyncio
import urllib.request
from typing import Final

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared
from bench.scale.load import append_cost, records_of, spread_over
from bench.setup.cluster import prepared, started
from dledger_proto.limits import KIB
from dledger_proto.network.ports import free_ports

TOPICS: Final = 1_000
"""As `metrics.series_max`."""
PAGES: Final = 50
SCRAPE_MS: Final = 15_000
"""Prometheus asks so often by default."""
SHARE_MAX: Final = 0.02
"""Of one core."""


async def measure(effort: Effort) -> list[Figure]:
    """Ask the leader for pages, and subtract what the members use without that.

    The leader's page is the longest: it alone has series of topics.
    """
    rounds = Rounds()
    cluster = prepared(effort.folder)
    ports = free_ports(len(cluster.member_names))
    for member, port in zip(cluster.member_names, ports, strict=True):
        with (cluster.folder / member / "config.toml").open("a") as config:
            config.write(f'\n[metrics]\nlisten = "127.0.0.1:{port}"\n')
    async with started(cluster) as here:
        port = ports[cluster.member_names.index(await here.leader())]
        places = [(await here.create_topic(f"metered-{number}"), 0) for number in range(TOPICS)]
        makes = await spread_over(here, places, records_of(KIB))
        await append_cost(here, makes, KIB, effort.seconds)  # a topic without traffic has no series
        await here.caught_up()
        loop = asyncio.get_running_loop()
        for _ in range(effort.runs):
            before, began = here.processor_seconds(), loop.time()
            for _ in range(PAGES):
                await asyncio.to_thread(_page, port)
            used, took = here.processor_seconds() - before, loop.time() - began
            before = here.processor_seconds()
            await asyncio.sleep(took)
            alone = here.processor_seconds() - before
            rounds.add("page", (used - alone) * 1_000 / PAGES)
    return [
        compared(
            "metrics_page", rounds["page"], "core-ms", "a core until the next one",
            [float(SCRAPE_MS)], "<=", SHARE_MAX, f"{TOPICS} topics",
        )
    ]  # fmt: skip


def _page(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        assert page.read().count(b"metered-") >= TOPICS, "this is no page of metrics"
