"""Real clusters as processes, for as long as a measurement needs them.

Owns: starting in a folder that is removed afterwards, waiting for a leader, what /proc says about
the processes. Not: the processes themselves (`dledger_broker.local.cluster`).
"""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

from dledger_broker.local.cluster import LocalCluster, Setting
from dledger_client import ConnectionConfig
from dledger_proto.network.tls import TlsFolder
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import open_channel
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import broker_pb2_grpc

READY_SECONDS_MAX = 60.0
CAUGHT_UP_SECONDS_MAX = 600.0
LOOK_SECONDS = 0.005
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
LEADER = "leader"


class NotReady(Exception):
    """The cluster did not come to what a measurement needs in time."""


@asynccontextmanager
async def within(seconds: float, what: str) -> AsyncGenerator[None]:
    """Bound a block; NotReady, which names what was waited for, when it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise NotReady(f"{what} did not come within {seconds:g} s") from None


@dataclass(slots=True)
class Running:
    """A cluster of one group that runs, and channels to its members."""

    cluster: LocalCluster
    channels: dict[str, grpc.aio.Channel] = field(default_factory=dict[str, grpc.aio.Channel])

    def channel(self, member: str) -> grpc.aio.Channel:
        """Return the channel to a member."""
        if member not in self.channels:
            options = [
                *raw.CHANNEL_OPTIONS,
                ("grpc.initial_reconnect_backoff_ms", 20),
                ("grpc.min_reconnect_backoff_ms", 20),
                ("grpc.max_reconnect_backoff_ms", 50),
                ("grpc.use_local_subchannel_pool", 1),
            ]
            folder = self.cluster.tls_folder
            keys = TlsFolder(folder).current() if folder else None
            self.channels[member] = open_channel(self.cluster.address(member), options, keys)
        return self.channels[member]

    async def status(self, member: str, timeout: float = 1.0) -> pb.StatusReply | None:
        """Return what a member says about itself; None when it does not answer."""
        admin = broker_pb2_grpc.AdminStub(self.channel(member))
        try:
            return await admin.Status(pb.StatusRequest(), timeout=timeout, metadata=self.metadata)
        except grpc.aio.AioRpcError:
            return None

    @property
    def connection(self) -> ConnectionConfig:
        """How the public clients reach the cluster."""
        return ConnectionConfig(tls_folder=self.cluster.tls_folder)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of every call: the group that is meant."""
        return (("dledger-group", self.cluster.group),)

    async def leader(self) -> str:
        """Wait until a member says that it leads; return its name."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            self.check_alive()
            for member in self.cluster.member_names:
                if self.cluster.is_running(member):
                    status = await self.status(member)
                    if status is not None and status.role == LEADER:
                        return member
            await asyncio.sleep(LOOK_SECONDS)
        raise NotReady(f"no leader within {READY_SECONDS_MAX} s; see {self.cluster.folder}")

    def check_alive(self) -> None:
        """Raise NotReady when a process has ended that was not killed: nobody waits for it."""
        for name, code in self.cluster.ended():
            if code != -signal.SIGKILL:
                lines = self.cluster.log_text(name).splitlines()
                said = lines[-1] if lines else "nothing"
                raise NotReady(f"{name} ended with exit code {code}; {name}.log ends with: {said}")

    async def follower(self) -> str:
        """Return the first member that does not lead."""
        leader = await self.leader()
        return next(name for name in self.cluster.member_names if name != leader)

    async def caught_up(self, *members: str) -> float:
        """Wait until members (none named: all) have applied what the leader has committed now.

        Returns how many seconds that took.
        """
        start = time.perf_counter()
        leader = await self.status(await self.leader())
        assert leader is not None
        names = members or self.cluster.member_names
        while time.perf_counter() - start < CAUGHT_UP_SECONDS_MAX:
            self.check_alive()
            found = [await self.status(name) for name in names]
            if all(
                each and each.applied_index >= leader.commit_index and each.term >= leader.term
                for each in found
            ):
                return time.perf_counter() - start
            await asyncio.sleep(LOOK_SECONDS)
        raise NotReady(f"{', '.join(names)} did not catch up; see {self.cluster.folder}")

    async def create_topic(self, name: str, queues: int = 1) -> bytes:
        """Create a topic and return its id."""
        admin = broker_pb2_grpc.AdminStub(self.channel(await self.leader()))
        request = pb.CreateTopicRequest(name=name, write_queues_per_group=queues)
        reply = await admin.CreateTopic(request, timeout=10, metadata=self.metadata)
        return reply.topic.id

    def processor_seconds(self) -> float:
        """Return the processor time that all members have used."""
        return sum(cpu_seconds(self.cluster.pid(name)) for name in self.cluster.member_names)

    def memory_mib(self) -> list[float]:
        """Return RssAnon of each member, MiB."""
        pids = [self.cluster.pid(name) for name in self.cluster.member_names]
        return [anonymous_bytes(pid) / (1 << 20) for pid in pids]

    async def close(self) -> None:
        """Close the channels."""
        for channel in self.channels.values():
            await channel.close(None)
        self.channels.clear()


@asynccontextmanager
async def running(
    folder: Path, members: int = 3, *, secure: bool = False, **settings: Setting
) -> AsyncGenerator[Running]:
    """Start a cluster in a new folder under `folder`; stop it and remove the folder in the end.

    `secure`: with TLS. Settings: `storage__segment_size_bytes=64 << 20`.
    """
    async with started(prepared(folder, members, secure=secure, **settings)) as here:
        await here.leader()
        yield here


def prepared(
    folder: Path, members: int = 3, *, secure: bool = False, **settings: Setting
) -> LocalCluster:
    """Return a cluster in a new folder under `folder`, whose files are there; see `running`."""
    cluster = LocalCluster(
        Path(tempfile.mkdtemp(prefix="cluster-", dir=folder)),
        cluster="bench",
        members=members,
        settings={
            "log.level": "info",
            **{name.replace("__", "."): value for name, value in settings.items()},
        },
        secure=secure,
        die_with_owner=True,
    )
    cluster.prepare()
    return cluster


@asynccontextmanager
async def started(cluster: LocalCluster) -> AsyncGenerator[Running]:
    """Start a prepared cluster; stop it and remove its folder in the end."""
    here = Running(cluster)
    try:
        cluster.start_all()
        yield here
    except Exception:
        _keep_logs(cluster)
        raise
    finally:
        await here.close()
        for name in cluster.names:
            if cluster.is_running(name):
                cluster.kill(name)  # its data goes anyway
        shutil.rmtree(cluster.folder, ignore_errors=True)


def _keep_logs(cluster: LocalCluster) -> None:
    """Copy what the processes printed to where a measurement that failed can be understood."""
    kept = cluster.folder.parent.with_name("bench-failed") / cluster.folder.name
    kept.mkdir(parents=True, exist_ok=True)
    for log in cluster.folder.glob("*.log"):
        shutil.copy(log, kept)


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def anonymous_bytes(pid: int) -> int:
    """Return RssAnon: resident memory that is not a file's."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise ValueError(f"no RssAnon in /proc/{pid}/status")


def resident_bytes(pid: int) -> int:
    """Return RSS: all resident memory, pages of mapped files, too."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_SIZE


def require_room(folder: Path, needed: int) -> None:
    """Raise NotReady when the disk has less free space than a measurement needs."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise NotReady(f"{folder}: {free >> 30} GiB free, {needed >> 30} GiB needed")
