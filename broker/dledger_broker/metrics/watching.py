"""All of it for one member: its HTTP port and its health service.

Owns: which sources a member has, and that its log tells of certificates. Not: when the member
starts and ends (`process.member`).
"""

import asyncio
from collections.abc import Collection, Iterator

import structlog

from dledger.store.store import StoreFailed
from dledger_broker.config.model import MemberConfig
from dledger_broker.group.group_view import GroupView
from dledger_broker.metrics.consumers import Consumers
from dledger_broker.metrics.of_group import OfGroup
from dledger_broker.metrics.of_process import OfProcess
from dledger_broker.metrics.of_topics import OfTopics
from dledger_broker.metrics.readiness import Readiness
from dledger_broker.process.platform import Platform
from dledger_broker.process.tasks import start_running
from dledger_broker.rpc.admission import AdmissionControl
from dledger_broker.snapshots.keeping import Snapshots
from dledger_monitoring.certificates import CertificateWatch
from dledger_monitoring.exposition import Exposition, Source
from dledger_monitoring.health import Health
from dledger_monitoring.port import Port, watched_pages
from dledger_monitoring.series import Sheet
from dledger_proto.network.tls import TlsFolder
from dledger_proto.rpc.raw import RawService


class Watching:
    """What shows one member to those who watch it."""

    def __init__(
        self,
        config: MemberConfig,
        admission: AdmissionControl,
        platform: Platform,
        tls: TlsFolder | None,
    ) -> None:
        self._config = config
        self._readiness = Readiness(admission)
        common = {"cluster": config.cluster, "node_type": "broker", "node_id": config.member}
        self._sources: list[Source] = [OfProcess(admission, self._readiness.not_ready).collect]
        self._certificates: CertificateWatch | None = None
        self._task: asyncio.Task[None] | None = None
        if tls is not None:
            log = structlog.get_logger().bind(member=config.member)
            self._certificates = CertificateWatch(tls, log, lambda: platform.clock.wall_ms() / 1000)
            self._sources.append(self._certificates.collect)
        self._exposition = Exposition(common, self._sources, platform.clock.monotonic)
        self._port = Port(watched_pages(self._exposition, self._readiness.not_ready))

    async def listen(self) -> None:
        """Take the port, if the configuration names one; OSError when it is not free."""
        if self._config.metrics.listen:
            await self._port.listen(self._config.metrics.listen)

    def start(self) -> None:
        """Begin to tell of certificates that end."""
        if self._certificates is not None:
            self._task = start_running(self._certificates.run, "certificates")

    def add_group(self, view: GroupView, snapshots: Snapshots) -> None:
        """Show a group that was just opened."""
        most = self._config.metrics.series_max
        sources = (
            OfGroup(view, snapshots).collect,
            OfTopics(view, most).collect,
            Consumers(view, most).collect,
        )
        self._sources += [_or_end(view, source) for source in sources]
        self._readiness.follow(view)

    def health(self, services: Collection[str]) -> RawService:
        """Return gRPC's health service of these services."""
        return Health(services, self._readiness.not_ready).handlers()

    def close(self) -> None:
        """Take no more scrapes."""
        if self._task is not None:
            self._task.cancel()
        self._port.close()
        self._exposition.close()


def _or_end(view: GroupView, source: Source) -> Source:
    """Return a source that ends the member when its state cannot be read (I16)."""

    def collect(sheet: Sheet) -> Iterator[None]:
        try:
            yield from source(sheet)
        except StoreFailed as error:
            view.host.failed(error)
            raise

    return collect
