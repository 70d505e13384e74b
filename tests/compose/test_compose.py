"""The cluster that people run: the image and the compose files of deploy/ on a real docker engine.

A strict-order producer outside sends without a pause, while the leader's container is killed,
paused and cut off, and all members are killed and restarted; then everything is read back, outside
and from a container inside. Where no engine can be had it is skipped, with the reason.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from _pytest.capture import CaptureManager

from dledger_broker.demo.proof import compare_members
from dledger_broker.security.authority import Authority, Wanted
from dledger_client import (
    AsyncAdmin,
    AsyncProducer,
    ClientError,
    ConnectionConfig,
    ProducerConfig,
)
from jepsen_tests.docker.engine import ROOT, DockerEngine, NoEngine, base_image, engine
from jepsen_tests.docker.stack import CommandFailed, Stack
from tests.compose.report import Report
from tests.compose.strict_order import (
    KEYS,
    TIMEOUT_MS,
    TOPIC,
    Found,
    Place,
    Traffic,
    judge,
    message_of,
    read_all,
)
from tests.waiting import until

pytestmark = pytest.mark.compose

MEMBERS: Final = ("n1", "n2", "n3")
GROUPS: Final = ("a", "b", "c")
SETTLE_SECONDS: Final = 60.0
ACKNOWLEDGED_AGAIN: Final = 20
"""So many of each key after a fault show that the group serves again."""
SPREAD: Final = 600
DATA: Final = "/var/lib/dledger/g1"


@dataclass(frozen=True)
class Built:
    """An engine with our image."""

    used: DockerEngine
    image: str
    base: str
    report: Report

    def stack(self, file: str, members: Sequence[str], **variables: str) -> Stack:
        """Return a compose file's containers, not yet made."""
        return Stack(self.used, file, self.image, self.base, members, **variables)


@pytest.fixture(scope="module")
def built(pytestconfig: pytest.Config) -> Iterator[Built]:
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert isinstance(capture, CaptureManager)
    report = Report(capture)
    try:
        with engine(report.say) as used:
            made = Built(used, f"dledger-test:{os.getpid()}", base_image(used), report)
            report.say(f"base image {made.base}")
            used.images.append(made.image)
            asyncio.run(made.stack("compose", MEMBERS).build())
            report.say("built the image from deploy/Dockerfile")
            yield made
            report.say("ending the engine" if used.is_ours else "removing the images")
    except NoEngine as error:
        report.say(f"SKIPPED: {error}\n")
        pytest.skip(str(error))
    report.say("nothing is left behind\n")


@asynccontextmanager
async def running(stack: Stack, report: Report) -> AsyncIterator[None]:
    """Keep the containers up for the length of the block; the logs are shown when it fails."""
    try:
        await stack.up()
        report.say(f"{len(stack.ports)} containers are healthy")
        yield
    except BaseException:
        report.say(await stack.compose("logs", "--tail", "30"))
        raise
    finally:
        await stack.down()


async def run_inside(stack: Stack, *arguments: str, inside: bool) -> str:
    """Run a dledger command in a container of its own in the members' network."""
    variables = ["--env", "DLEDGER_NAME_SERVERS=ns1:9876,ns2:9876"]
    variables += ["--env", "DLEDGER_INSIDE=1"] if inside else []
    network = ["--network", stack.network]
    return await stack.docker("run", "--rm", *network, *variables, stack.image, *arguments)


async def exit_codes(stack: Stack) -> dict[str, int]:
    """Return how the members' containers ended."""
    shown = await stack.docker("inspect", *map(stack.container, stack.members))
    return {
        member: int(each["State"]["ExitCode"])
        for member, each in zip(stack.members, json.loads(shown), strict=True)
    }


class OneGroup:
    """The three members, those who look at them, and the traffic that goes on."""

    def __init__(self, stack: Stack, admin: AsyncAdmin, report: Report) -> None:
        self._stack = stack
        self._admin = admin
        self._report = report
        self.traffic = Traffic()

    async def settled(self) -> str:
        """Wait until all members are there and follow one leader; return its name."""
        loop = asyncio.get_running_loop()
        end = loop.time() + SETTLE_SECONDS
        while True:
            try:
                leader = await self._leader_of_all()
            except ClientError:
                leader = ""
            if leader:
                return leader
            assert loop.time() < end, f"not all members are there within {SETTLE_SECONDS} s"
            await asyncio.sleep(0.1)

    async def _leader_of_all(self) -> str:
        states = [await self._admin.status(self._stack.address(name)) for name in MEMBERS]
        leader = next((state for state in states if state.role == "leader"), None)
        if leader is None or any(state.leader != leader.member for state in states):
            return ""
        behind = [each for each in leader.members if each.match_index < leader.commit_index]
        return "" if behind or any(state.reason for state in states) else leader.member

    async def survive(
        self, name: str, begin: Callable[[str], Awaitable[None]],
        end: Callable[[str], Awaitable[None]] | None = None, *, member: str = "",
    ) -> None:  # fmt: skip
        """Do something bad to the leader, wait until every key is served again, undo it."""
        leader = await self.settled()
        since = asyncio.get_running_loop().time()
        await begin(leader)
        await self._flowing()
        if end is not None:
            await end(leader)
        await self.settled()
        gap = self.traffic.longest_silence(since)
        self._report.gaps.append((name, member or leader, gap))
        self._report.say(f"{name} ({member or leader}): nothing acknowledged for {gap:.2f} s")

    async def _cut_off(self, member: str) -> None:
        container = self._stack.container(member)
        await self._stack.docker("network", "disconnect", self._stack.network, container)

    async def _join(self, member: str) -> None:
        command = ("network", "connect", "--alias", member, self._stack.network)
        await self._stack.docker(*command, self._stack.container(member))

    async def _flowing(self) -> None:
        counts = self.traffic.counts.copy()
        await until(
            lambda: all(
                self.traffic.counts[key] >= counts[key] + ACKNOWLEDGED_AGAIN for key in KEYS
            ),
            "every key is acknowledged again",
            SETTLE_SECONDS,
        )

    async def faults(self) -> None:
        """One after the other."""
        await self._flowing()
        await self.survive("leader's container killed", self._each("kill"), self._each("start"))
        await self.survive("leader paused", self._each("pause"), self._each("unpause"))
        await self.survive("leader cut off from the network", self._cut_off, self._join)
        await self.survive("all containers killed at once", self._kill_all, member="all")
        await self.survive("all containers restarted at once", self._restart_all, member="all")

    def _each(self, command: str) -> Callable[[str], Awaitable[None]]:
        return lambda leader: self._stack.each(command, leader)

    async def _kill_all(self, _leader: str) -> None:
        await self._stack.compose("kill", *MEMBERS)
        await self._stack.compose("start", *MEMBERS)

    async def _restart_all(self, _leader: str) -> None:
        await self._stack.compose("restart", *MEMBERS)


async def with_traffic(group: OneGroup, name_servers: str) -> None:
    """Send while the faults happen, and until everything on its way is acknowledged."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(group.traffic.run(name_servers))
        await group.faults()
        group.traffic.stop()


async def read_inside(stack: Stack) -> list[Found]:
    """Read the topic by the command in a container of its own, beside the members."""
    read = "tail", TOPIC, "--from", "beginning", "--json"
    found: list[Found] = []
    for line in (await run_inside(stack, *read, inside=True)).splitlines():
        row = json.loads(line)
        found.append((Place(row["queue"], row["offset"]), message_of(row["body"].encode())))
    return found


async def run_the_example(stack: Stack) -> None:
    """Run the producer of the first example in deploy/README.md."""
    example = ROOT / "deploy" / "strict_order_producer.py"
    lines = await stack.run(sys.executable, str(example), stack.name_servers, "5")
    steps = re.findall(r"^step (\d+): queue \d+, offset (\d+),", lines, re.MULTILINE)
    assert steps == [(str(step), str(step)) for step in range(5)]


async def lose_the_data_of_a_member(stack: Stack) -> None:
    """Do what docs/operating.md says about a damaged member."""
    await stack.compose("stop", "n3")
    await stack.compose("run", "--rm", "n3", "repair", DATA, "--even-if-healthy", "--yes")
    await stack.compose("start", "n3")


async def one_group(stack: Stack, report: Report) -> None:
    async with running(stack, report), AsyncAdmin(stack.name_servers) as admin:
        group = OneGroup(stack, admin, report)
        await admin.create_topic(TOPIC, queues_per_group=4)
        await with_traffic(group, stack.name_servers)
        acknowledged = group.traffic.acknowledged
        found = await read_all(stack.name_servers)
        verdict = judge(acknowledged, found)
        await run_the_example(stack)
        await lose_the_data_of_a_member(stack)
        report.say(f"a member came back without its data; led by {await group.settled()}")
        addresses = {name: stack.address(name) for name in MEMBERS}
        same = await compare_members(admin, addresses, SETTLE_SECONDS)
        inside = await read_inside(stack)
        with pytest.raises(CommandFailed, match="exit code 3"):  # localhost is the container
            await run_inside(stack, "topic", "list", "--timeout", "2", inside=False)
        await stack.compose("stop", *MEMBERS)
        report.totals += [
            ("acknowledged, by 8 keys with a window of 16", len(acknowledged)),
            ("read back outside", len(found)),
            ("read back inside", len(inside)),
            *((f"{name}", len(getattr(verdict, name))) for name in verdict.__dataclass_fields__),
            ("entries in each of three equal logs", same.entries if same.identical else "DIFFER"),
        ]
        report.table()
        assert verdict.is_good, verdict
        assert same.identical, same.differences
        assert sorted(inside) == sorted(found)
        assert await exit_codes(stack) == dict.fromkeys(MEMBERS, 0), "drained when stopped"


async def three_groups(stack: Stack, report: Report) -> None:
    async with running(stack, report), AsyncAdmin(stack.name_servers) as admin:
        topic = await admin.create_topic("spread", queues_per_group=2)
        assert topic.parts == tuple((group, 2) for group in GROUPS)
        async with AsyncProducer(stack.name_servers) as producer:
            sent = [
                await producer.send("spread", b"%d" % number, queue=number % 6)
                for number in range(SPREAD)
            ]
        assert {each.queue for each in sent} == set(range(6))
        bounds = await admin.queue_offsets("spread")
        assert {each.maximum for each in bounds.values()} == {SPREAD // 6}
        leaders = {group.name: group.leader for group in await admin.groups()}
        report.say(f"{SPREAD} messages over three groups, led by {', '.join(leaders.values())}")
        assert set(leaders) == set(GROUPS)


async def with_tls(stack: Stack, report: Report, folder: Path) -> None:
    async with running(stack, report):
        there = ConnectionConfig(tls_folder=str(folder / "client-app"))
        config = ProducerConfig(connection=there, timeout_ms=TIMEOUT_MS)
        async with (
            AsyncAdmin(stack.name_servers, there) as admin,
            AsyncProducer(stack.name_servers, config) as producer,
        ):
            await admin.create_topic("secured", queues_per_group=1)
            for number in range(SPREAD):
                if number == SPREAD // 2:
                    (group,) = await admin.groups()
                    await stack.each("kill", group.leader)
                assert (await producer.send("secured", b"%d" % number)).offset == number
            await stack.each("start", group.leader)
            left = [name for name in MEMBERS if name != group.leader]
            statuses = [await admin.status(stack.address(name)) for name in left]
            assert {status.security for status in statuses} == {"on"}
        report.say(f"{SPREAD} messages over TLS, over the death of leader {group.leader}")
        strange = Authority.make("compose").issue(folder, Wanted("strange", []))
        for tls_folder in ("", str(strange)):
            await refused(stack, ConnectionConfig(tls_folder=tls_folder, call_timeout_ms=2_000))
        held = await stack.compose("exec", left[0], "sh", "-c", "cd /etc/dledger; ls; ls tls")
        assert held.split() == ["member.toml", "tls", "ca.crt", "tls.crt", "tls.key"]
        await stack.compose("exec", left[0], "dledger", "routes")  # commands inside have it, too


async def refused(stack: Stack, connection: ConnectionConfig) -> None:
    """Nobody answers a client that has no certificate of the cluster's authority."""
    async with AsyncAdmin(stack.name_servers, connection) as admin:
        with pytest.raises(ClientError):
            await admin.groups()
        for name in MEMBERS:
            with pytest.raises(ClientError):
                await admin.status(stack.address(name))


def test_one_group_under_faults(built: Built) -> None:
    asyncio.run(one_group(built.stack("compose", MEMBERS), built.report))


def test_a_topic_spread_over_three_groups(built: Built) -> None:
    members = [f"{group}{number}" for group in GROUPS for number in (1, 2, 3)]
    asyncio.run(three_groups(built.stack("compose.groups", members), built.report))


def test_with_tls_only_holders_of_a_certificate_connect(built: Built, tmp_path: Path) -> None:
    stack = built.stack("compose.tls", MEMBERS, TLS_FOLDER=str(tmp_path))
    asyncio.run(with_tls(stack, built.report, tmp_path))


def test_the_image_is_small_in_rights_and_tools(built: Built) -> None:
    look = "id -u; for tool in cc gcc make; do ! command -v $tool; done; ls -A ~/.cache 2>&- ||:"
    shown = built.used.docker("run", "--rm", "--entrypoint", "sh", built.image, "-ec", look)
    assert shown.split() == ["10911"]
