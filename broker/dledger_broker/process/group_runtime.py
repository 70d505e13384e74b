"""One group of a member, opened: folder, log, state, Raft group, links.

Owns the order in which these are made and closed. Not owned: any rule of what is made here, what
goes on while the group runs (`dledger.raft.driver.host`, `upkeep`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog

from dledger.log.commit_log import CommitLog
from dledger.log.folder import DataFolder
from dledger.raft.commit.applying import check_state
from dledger.raft.driver.host import GroupHost, HostSettings
from dledger.raft.group import RaftGroup
from dledger.raft.links.greeting import LinkIdentity
from dledger.raft.links.peer_link import (
    LINK_QUEUE_BYTES_SLACK,
    LinkSettings,
    PeerLink,
)
from dledger.raft.links.peer_listener import LinkTarget, PeerListener
from dledger.refill.install import install
from dledger.refill.staging import Staging
from dledger.state.machine import StateMachine
from dledger.store.store import StoreFull
from dledger.types import MemberId
from dledger_broker.append.router import AppendRouter, PendingBatch
from dledger_broker.carrying.carrying import Carrying
from dledger_broker.cluster.channels import Channels
from dledger_broker.cluster.forward import AppendForwarder
from dledger_broker.compacting.compacting import Compacting
from dledger_broker.config.model import GroupConfig, MemberConfig
from dledger_broker.group.commands import Commands
from dledger_broker.group.duties import duties
from dledger_broker.group.group_view import GroupNames, GroupView
from dledger_broker.group.leases import Leases
from dledger_broker.group.long_poll import LongPoll
from dledger_broker.group.topic_watch import TopicWatch
from dledger_broker.metrics.meters import CountedTrace, GroupMeters
from dledger_broker.process.log_trace import LogTrace
from dledger_broker.process.platform import Platform
from dledger_broker.process.tasks import start_running
from dledger_broker.process.upkeep import Upkeep
from dledger_broker.refill.giving import Given, Giving
from dledger_broker.refill.receiving import Refill
from dledger_broker.repair.scrub import Scrub, Scrubbing
from dledger_broker.snapshots.keeping import Snapshots
from dledger_broker.timers.firing import TimerFiring
from dledger_broker.timers.sending import ScheduleSending
from dledger_broker.usecases.messaging import Messaging
from dledger_proto.errors import DledgerError
from dledger_proto.network.tls import TlsFolder

HAND_OVER_SECONDS: Final = 2.0


class GroupRuntime:
    """The parts of one group in this process."""

    view: GroupView
    messaging: Messaging
    snapshots: Snapshots
    router: AppendRouter

    def __init__(
        self,
        config: MemberConfig,
        group: GroupConfig,
        platform: Platform,
        channels: Channels,
        tls: TlsFolder | None = None,
    ) -> None:
        self._config = config
        self._tls = tls
        self._group_config = group
        self._platform = platform
        self._channels = channels
        self._links: dict[MemberId, PeerLink] = {}
        self._loops: list[asyncio.Task[None]] = []
        """What runs beside the group until it stops."""
        self._refill: Refill | None = None
        self._scrub: Scrub | None = None
        self._giving: Giving | None = None
        self._telling_topics = False
        self._meters = GroupMeters()
        self.known_index: Callable[[], int] = lambda: 0
        """Returns the index up to which this member knows all decisions of the control group."""
        self.broker_groups: Callable[[], Sequence[str]] = tuple
        """Returns the broker groups of the cluster, for the control group; else none."""
        self.on_topics_changed: list[Callable[[], None]] = []
        self._log_lines = structlog.get_logger().bind(group=group.name, member=group.member)

    def open(self, on_failure: Callable[[BaseException], None]) -> None:
        """Open everything; blocks for as long as recovery takes. Nothing runs yet."""
        config, group, platform = self._config, self._group_config, self._platform
        fs, random = platform.file_system, platform.random
        member = MemberId(group.member)
        self._folder = DataFolder.open(
            fs, str(group.folder), config.cluster, group.name, member, random
        )
        map_size = config.state.map_size_bytes
        refilled = install(
            self._folder, lambda: platform.open_store(self._folder.state_path, map_size)
        )
        if refilled:
            self._log_lines.warning("refilled by its group", what=refilled)
        self._log = CommitLog(fs, self._folder, config.log_settings(), random)
        for note in self._log.recovery_notes:
            self._log_lines.warning("recovery changed the log", what=note)
        self._store = platform.open_store(self._folder.state_path, map_size)
        machine = StateMachine(self._store, group.name)
        first_index, last_index = self._log.first_index, self._log.last_index
        check_state(self._folder.state_path, machine.applied_index, first_index, last_index)
        watch = TopicWatch(machine.queries, self._topics_changed)
        machine.events.subscribe(watch.applied)
        settings = config.group_settings(group)
        lines = LogTrace(group.name, group.member, lambda: raft.term, platform.note)
        self._trace = CountedTrace(lines, self._meters)
        raft = RaftGroup(
            settings,
            self._folder.identity,
            self._log,
            self._folder.load_hard_state(),
            machine,
            platform.clock,
            random,
            self._trace,
        )
        host = GroupHost(
            raft,
            machine,
            self._log,
            HostSettings(save_interval=config.state.save_interval_ms / 1000, state_full=StoreFull),
            platform.clock,
            on_failure,
            platform.start_worker,
            name=group.name,
        )
        self._serve(host, machine, watch)
        self.snapshots = Snapshots(
            self.view,
            self._store,
            fs,
            self._folder.path,
            lambda: self._folder.identity,
            lambda path: platform.open_store(path, map_size),
        )
        self.snapshots.begin()
        self.view.keeps_snapshots = lambda: self.snapshots.has_any

    def _topics_changed(self) -> None:
        """Called within apply: tell once per turn of the loop."""
        if not self._telling_topics:
            self._telling_topics = True
            asyncio.get_running_loop().call_soon(self._tell_topics)

    def _tell_topics(self) -> None:
        self._telling_topics = False
        for tell in self.on_topics_changed:
            tell()

    def _serve(self, host: GroupHost, machine: StateMachine, watch: TopicWatch) -> None:
        config, group, platform = self._config, self._group_config, self._platform
        names = GroupNames(
            config.cluster,
            group.name,
            MemberId(group.member),
            _by_member(group.members),
            _by_member(group.clients),
            group.name == config.control_group,
        )
        self.view = GroupView(
            names,
            host,
            machine,
            watch,
            self._log,
            platform.pool,
            LongPoll(),
            Commands(host),
            platform.clock,
            Leases(machine, platform.clock),
            config.topics.retention,
            config.topics.tombstone_ms,
            meters=self._meters,
        )
        self.view.watch()
        self.messaging = Messaging(self.view)
        self._forwarder = AppendForwarder(group.name, self._channels, platform.clock, self._reroute)
        self.router = AppendRouter(host, names, self._forwarder.send, platform.clock, self._meters)

    def _reroute(self, items: Sequence[PendingBatch]) -> None:
        self.router.reroute(items)

    def start(
        self, listener: PeerListener, giving: Giving, on_refilled: Callable[[], None]
    ) -> None:
        """Dial the peers, take their links, start the group.

        `on_refilled` is called when a refill is gathered: it is used at the next start.
        """
        config, names = self._config, self.view.names
        identity = LinkIdentity(
            config.cluster, names.group, names.member, self._folder.identity.incarnation
        )
        host = self.view.host
        self._make_links(identity)
        host.start(self._links)
        listener.add_group(
            names.group, LinkTarget(names.member, frozenset(self._links), host, self._links)
        )
        for link in self._links.values():
            link.start()
        own = duties(
            config.topics.producer_expiry_ms,
            self.view.retention,
            self.broker_groups,
            delete_when_low=config.topics.delete_when_low,
        )
        self.view.endangered = lambda: [said for duty in own for said in duty.says()]
        self._begin("upkeep", Upkeep(self.view, own, self.known_index).run)
        self._giving = giving
        giving.add_group(
            names.group,
            Given(
                self.view,
                self._store,
                self._platform.file_system,
                self._folder.path,
                self._platform.start_worker,
            ),
        )
        self._start_refill(identity, on_refilled)
        self._start_scrub(identity)
        self._begin("timers", TimerFiring(self.view).run)
        self._begin("schedules", ScheduleSending(self.view).run)
        self._begin("carrying", Carrying(self.view).run)
        self._begin("compacting", Compacting(self.view).run)

    def _make_links(self, identity: LinkIdentity) -> None:
        raft = self._config.raft
        settings = LinkSettings(
            redial_timeout=raft.link_loss_redial_ms / 1000,
            queue_bytes_max=raft.inflight_bytes_max + LINK_QUEUE_BYTES_SLACK,
            tls=self._tls,
        )
        for peer, address in _by_member(self._group_config.links).items():
            if peer != identity.member:
                self._links[peer] = PeerLink(
                    identity,
                    peer,
                    address,
                    self.view.host,
                    self._log,
                    self._platform.pool,
                    self._platform.random,
                    self._trace,
                    settings,
                )

    def _begin(self, what: str, run: Callable[[], Awaitable[None]]) -> None:
        self._loops.append(start_running(run, f"{what} {self.view.names.group}"))

    def _start_refill(self, identity: LinkIdentity, on_refilled: Callable[[], None]) -> None:
        config, platform = self._config, self._platform
        staging = Staging(
            platform.file_system,
            self._folder.path,
            self._folder.identity,
            config.log_settings(),
            platform.random,
        )
        refill = self._refill = Refill(
            self.view,
            staging,
            identity,
            self._channels,
            platform.start_worker,
            platform.random,
            config.refill.bytes_per_second,
        )
        refill.on_gathered = on_refilled
        self.view.refill_says = lambda: refill.says
        self.view.refill_left_bytes = lambda: refill.left_bytes
        self._begin("refill", refill.run)

    def _start_scrub(self, identity: LinkIdentity) -> None:
        view = self.view
        parts = Scrubbing(view, self._folder, identity, self._channels, self._platform.start_worker)
        scrub = self._scrub = Scrub(parts, self._config.scrub)
        view.look_at, view.scrub_now = scrub.look_at, scrub.begin
        view.host.mend_by(scrub.takes)
        self._begin("scrub", scrub.run)

    async def hand_over(self) -> None:
        """Give leadership away; nothing when this member does not lead, or is alone."""
        self.router.stop()
        if not self.view.leads or len(self.view.names.addresses) == 1:
            return
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                leader = await self.view.host.transfer(None)
            self._log_lines.info("leadership handed over", leader=leader)
        except (TimeoutError, DledgerError) as error:
            self._log_lines.warning(
                "leadership not handed over", reason=str(error) or "no answer in time"
            )

    async def stop(self, limit: float) -> bool:
        """Save, close; False when a disk hangs for about `limit` seconds and all stays open."""
        for task in self._loops:
            task.cancel()
        await self._forwarder.stop()
        ended = False
        try:
            async with asyncio.timeout(limit):
                await self.snapshots.stop()
                await self.view.host.stop()
                if self._giving is not None and self._refill is not None:
                    await self._giving.stop(self.view.names.group)
                    await self._refill.stop()
                if self._scrub is not None:
                    await self._scrub.stop()
            ended = True
        except TimeoutError:
            self._log_lines.warning("the disk did not answer in time", limit_seconds=limit)
        for link in self._links.values():
            await link.stop()
        if not ended:
            return False  # a thread may still write: keep lock and files until the process is gone
        self._log.close()
        self._store.close()
        if self._refill is not None:
            last_index, group_id = self._log.last_index, self._log.group_id
            # Off the loop: other groups of this process may still lead.
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._refill.finish, last_index, group_id)
        self._folder.close()
        return True


def _by_member(addresses: Mapping[str, str]) -> dict[MemberId, str]:
    return {MemberId(name): address for name, address in addresses.items()}
