"""A real cluster whose processes serve metrics, and what a scraper sees of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from dledger_broker.local.cluster import NAME_SERVER, Setting
from dledger_proto.network.ports import free_ports
from tests.http_page import ask
from tests.integration.cluster import Cluster, running_cluster


class Scraped:
    """One scrape, parsed by the library of Prometheus."""

    def __init__(self, text: str) -> None:
        self.families: dict[str, Metric] = {}
        for family in text_string_to_metric_families(text):
            assert family.name not in self.families, f"{family.name} is there twice"
            self.families[family.name] = family
        self.samples = [sample for each in self.families.values() for sample in each.samples]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the one value with these labels; None when there is none."""
        found = [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(found) <= 1, f"{name} {labels}: {found}"
        return found[0] if found else None

    @property
    def names(self) -> set[str]:
        """The names of all samples."""
        return {sample.name for sample in self.samples}


class Watched:
    """A running cluster, and where each process shows itself."""

    def __init__(self, cluster: Cluster, ports: dict[str, int]) -> None:
        self.cluster = cluster
        self.ports = ports

    async def scrape(self, name: str) -> Scraped:
        """Return the metrics of a process."""
        status, text = await ask(self.ports[name], "/metrics")
        assert status == 200, text
        return Scraped(text)


@asynccontextmanager
async def watched_cluster(
    folder: Path, members: int = 3, **settings: Setting
) -> AsyncIterator[Watched]:
    """Run a cluster whose processes serve metrics."""
    async with running_cluster(
        folder, members, start=False, cluster_name="local", secure=False, **settings
    ) as cluster:
        ports = dict(zip(cluster.local.names, free_ports(members + 1), strict=True))
        cluster.local.own_settings = {
            name: {"metrics.listen": f"127.0.0.1:{port}"} for name, port in ports.items()
        } | {NAME_SERVER: {"metrics-listen": f"127.0.0.1:{ports[NAME_SERVER]}"}}
        cluster.local.prepare()
        cluster.local.start_all()
        yield Watched(cluster, ports)
