"""The comparison with other systems, without any of them: arithmetic, what is told, waits."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench.peers import __main__ as command
from bench.peers import etcd, installing, page, rounds
from bench.peers.figures import FULL, QUICK, ROWS, Results, Row, by_our_clients, gaps, milliseconds
from bench.peers.kafka import Kafka, java_major
from bench.peers.measuring import full_speed, longest_gap, paced
from bench.peers.nodes import Nodes
from bench.peers.peer import Done, Load, Peer, Sent
from bench.peers.rabbitmq import Channel, RabbitMq, debian_version
from bench.setup.cluster import NotReady
from dledger_proto.v1 import broker_pb2 as pb

RATE = Row("backlog", "backlog", "msg/s")
TIME = Row("lone_asyncio_p50", "lone", "ms")
LONGEST = Row("failover_max", "gap", "s", "max")


def results(**by_system: Sequence[float]) -> Results:
    """Return results with the same runs for each of three rows."""
    found = Results()
    for system, values in by_system.items():
        for row in (RATE, TIME, LONGEST):
            for value in values:
                found.add(system, row.key, value)
    return found


def test_a_ratio_is_above_one_where_ours_is_better() -> None:
    found = results(dledger=[10.0, 30.0, 20.0], other=[5.0, 100.0, 4.0])
    assert found.ratio("other", RATE) == 20 / 5, "more messages are better"
    assert found.ratio("other", TIME) == 5 / 20, "less time is better"
    assert found.ratio("other", LONGEST) == 100 / 30, "the longest gaps of all rounds"


def test_what_is_not_measured_has_no_ratio() -> None:
    found = results(dledger=[10.0])
    assert found.value("other", RATE) is None
    assert found.ratio("other", RATE) is None
    assert page.cell(found, "other", RATE) == page.NOT_MEASURED
    assert results(other=[1.0]).ratio("other", RATE) is None
    with pytest.raises(AssertionError, match="no figure 'speed'"):
        found.add("other", "speed", 1.0)


def test_a_peer_with_one_client_stands_beside_both_of_ours() -> None:
    ours = by_our_clients("lone", {"blocking": [0.002], "asyncio": [0.001]})
    assert ours["lone_blocking_p50"] == 2.0
    assert ours["lone_asyncio_p99"] == 1.0
    theirs = by_our_clients("lone", {"go": [0.003]})
    assert set(theirs) == set(ours)
    assert set(theirs.values()) == {3.0}


def test_seconds_become_percentiles_and_gaps() -> None:
    seconds = [number / 1000 for number in range(1, 1001)]
    found = milliseconds("loaded", seconds, p50=0.5, p999=0.999)
    assert found == {"loaded_p50": 501.0, "loaded_p999": 1000.0}
    assert gaps([0.1, 0.5, 0.2]) == {"failover_median": 0.2, "failover_max": 0.5}


def test_a_gap_counts_when_it_ends_after_the_kill() -> None:
    assert longest_gap([1.0, 9.0, 9.5, 9.75], killed=9.25) == 0.5
    assert longest_gap([1.0, 9.0, 9.5, 9.75], killed=9.6) == 0.25, "an answer on its way"
    assert longest_gap([1.0], killed=2.0) == 0.0


@dataclass
class Fake:
    """A system that only exists here."""

    name: str
    lost: str = ""
    cannot_start: bool = False
    told: list[str] = field(default_factory=list[str])
    fsync: str = "nobody syncs"
    note: str = "It is fast."
    errors: tuple[type[Exception], ...] = (ZeroDivisionError,)

    def missing(self) -> str:
        return self.lost

    def lacks(self, load: Load) -> str:
        return "it has one queue" if load.queues > 1 else ""

    def version(self) -> str:
        return "v1"

    def install(self) -> None:
        self.told.append(f"install {self.name}")

    async def start(self, folder: Path) -> None:
        (folder / "n1.log").write_text("what it said\n")
        self.told.append(f"start {self.name}")
        if self.cannot_start:
            raise NotReady("it did not come within 1 s")

    async def stop(self) -> None:
        self.told.append(f"stop {self.name}")

    async def one_call_per_message(self, load: Load) -> Sent:
        return Sent(load.rate or 1000.0, [0.001] if load.rate else [])

    async def lone_send(self, seconds: float) -> dict[str, list[float]]:
        return {"its": [seconds]}

    async def backlog(self, count: int) -> float:
        raise ZeroDivisionError(f"{count} by 0")

    async def end_to_end(self, rate: float, seconds: float) -> list[float]:
        return [1 / rate, 1 / seconds]

    async def failover(self, trials: int) -> list[float]:
        return [0.5] * trials


def measure(tmp_path: Path, *peers: Fake, times: int = 1) -> tuple[Results, list[str]]:
    """Run rounds of fakes; return the results, and what was told."""
    told: list[str] = []
    found = Results()
    there = rounds.available(peers, found, told.append)
    (tmp_path / "work").mkdir()
    work, failed = tmp_path / "work", tmp_path / "failed"
    run = rounds.Rounds(found, QUICK, work, failed, told.append, lambda *_: None)
    asyncio.run(run.run(there, times))
    return found, told


def test_a_system_that_is_missing_is_told_loudly(tmp_path: Path) -> None:
    found, told = measure(tmp_path, Fake("lost", lost="not on the PATH: java"), Fake("here"))
    assert found.left_out[0] == "lost is left out: not on the PATH: java"
    assert "LEFT OUT: lost is left out: not on the PATH: java" in told
    assert found.has_failed
    assert found.value("lost", TIME) is None
    assert found.value("here", TIME) == QUICK.lone_seconds * 1000


def test_a_figure_that_fails_is_left_out_and_the_others_are_there(tmp_path: Path) -> None:
    found, told = measure(tmp_path, Fake("here"))
    measured = {key for _, key in found.values}
    assert {row.key for row in ROWS} - measured == {"four_queues", "backlog"}
    assert f"here, the backlog: ZeroDivisionError: {QUICK.backlog_messages} by 0" in found.left_out
    assert any("the backlog" in each for each in told if each.startswith("LEFT OUT"))
    assert (tmp_path / "failed" / "here" / "n1.log").read_text() == "what it said\n"


def test_what_a_system_has_not_by_nature_is_no_failure() -> None:
    found = Results()
    found.leave_out("it has one queue", by_nature=True)
    found.leave_out("it has one queue", by_nature=True)
    assert found.left_out == ["it has one queue"]
    assert not found.has_failed
    found.leave_out("it did not start")
    assert found.has_failed


def test_systems_take_turns_and_each_is_ended(tmp_path: Path) -> None:
    told: list[str] = []
    one, bad = Fake("one", told=told), Fake("bad", cannot_start=True, told=told)
    found, _ = measure(tmp_path, one, bad, times=2)
    turn = ["start one", "stop one", "start bad", "stop bad"]
    assert told == ["install one", "install bad", *turn, *turn]
    assert found.left_out[-1] == "bad, a round: NotReady: it did not come within 1 s"
    assert len(found.values["one", "one_queue"]) == 2
    assert not list((tmp_path / "work").iterdir()), "the data are removed"


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK', 17),
        ('java version "1.8.0_202"', 1),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", 0),
    ],
)
def test_the_version_of_java_is_read(said: str, major: int) -> None:
    assert java_major(said) == major


def test_an_old_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Kafka(tmp_path).missing() == "not on the PATH: java, mvn"
    fake_tool(tmp_path, "java", """echo 'openjdk version "11.0.2"' >&2""")
    installing.jars(tmp_path).mkdir()
    assert Kafka(tmp_path).missing() == "java on the PATH is 11, at least 17 is needed"


STATUS = """Package: erlang-base
Status: install ok installed
Version: 27.3

Package: rabbitmq-server
Version: 4.0.5-6
Description: a broker
 Version: not this
"""


def test_the_version_of_a_package_is_read() -> None:
    assert debian_version(STATUS, "rabbitmq-server") == "4.0.5-6"
    assert debian_version(STATUS, "erlang-base") == "27.3"
    assert debian_version(STATUS, "rabbitmq") == ""


def test_rabbitmq_says_that_it_needs_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in RabbitMq(tmp_path).missing()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    lost = "not on the PATH: unshare, chroot, mount"
    assert RabbitMq(tmp_path).missing() == f"{lost}, mmdebstrap"
    installing.debian_root(tmp_path).mkdir()
    assert RabbitMq(tmp_path).missing() == lost


@dataclass
class Method:
    """A confirm as pika hands it over."""

    delivery_tag: int
    multiple: bool = False
    NAME: str = "Basic.Ack"


@dataclass
class Frame:
    method: Method


def test_confirms_of_rabbitmq_find_their_messages() -> None:
    async def story() -> list[tuple[int, bool]]:
        told: list[tuple[int, bool]] = []
        channel = Channel()
        for tag in range(1, 7):
            channel._done[tag] = partial(_tell, told, tag)
        channel._confirmed(Frame(Method(2)))
        channel._confirmed(Frame(Method(2)))  # a second one for it changes nothing
        channel._confirmed(Frame(Method(4, multiple=True)))
        channel._confirmed(Frame(Method(5, NAME="Basic.Nack")))
        assert channel.unconfirmed == 1
        return told

    assert asyncio.run(story()) == [(2, True), (1, True), (3, True), (4, True), (5, False)]


def _tell(told: list[tuple[int, bool]], tag: int, is_stored: bool) -> None:
    told.append((tag, is_stored))


@dataclass
class FakeSender:
    """A producer that acknowledges what it is given when it breathes."""

    is_ok: bool = True
    window: int = 1000
    taken: list[str] = field(default_factory=list[str])
    waiting: list[Done] = field(default_factory=list[Done])

    def submit(self, topic: str, body: bytes, done: Done) -> bool:
        if len(self.waiting) == self.window:
            return False
        self.taken.append(topic)
        self.waiting.append(done)
        return True

    async def room(self) -> None:
        await self.breathe()

    async def breathe(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(self.is_ok)

    async def send(self, topic: str, body: bytes) -> bool:
        return self.is_ok


def test_a_load_goes_round_its_topics_and_waits_for_room() -> None:
    sender = FakeSender(window=3)
    sent = asyncio.run(full_speed(sender, ["a", "b"], Load(0.05)))
    assert sent.rate > 0
    assert sender.taken[:6] == ["a", "b", "a", "b", "a", "b"]
    assert not sender.waiting


def test_sends_that_fail_do_not_count() -> None:
    with pytest.raises(NotReady, match=r"(\d+) of \1 sends failed"):
        asyncio.run(full_speed(FakeSender(is_ok=False), ["a"], Load(0.01)))


def test_a_paced_load_counts_the_messages_after_the_warm_up() -> None:
    sender = FakeSender()
    sent = asyncio.run(paced(sender, "a", Load(0.1, rate=1000.0)))
    assert len(sender.taken) == 1 + 125, "the first message opens the way"
    assert len(sent.seconds) == 100
    assert min(sent.seconds) >= 0, "no message goes before it is due"


def test_etcd_speaks_protobuf() -> None:
    fields: dict[int, int | bytes] = {1: b"name", 2: 300, 3: b"", 15: 1 << 40}
    assert etcd.decode(etcd.encode(fields)) == {number: [each] for number, each in fields.items()}
    theirs = pb.CreateTopicRequest(name="orders", write_queues_per_group=300).SerializeToString()
    ours = {each.number: each for each in pb.CreateTopicRequest.DESCRIPTOR.fields}
    found = {ours[number].name: values for number, values in etcd.decode(theirs).items()}
    assert found == {"name": [b"orders"], "write_queues_per_group": [300]}
    assert etcd.encode({number: values[0] for number, values in etcd.decode(theirs).items()}) == (
        theirs
    )
    with pytest.raises(ValueError, match="wire type 5"):
        etcd.decode(bytes([1 << 3 | 5]))


def test_a_tool_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert etcd.Etcd(tmp_path).missing() == "not on the PATH: go"
    built = installing.ETCD.place(tmp_path)
    built.parent.mkdir()
    built.touch()
    assert etcd.Etcd(tmp_path).missing() == "", "what is built needs no tool"


def fake_tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_a_program_with_another_checksum_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_tool(tmp_path, "go", 'if [ "$2" = download ]; then echo \'{"Sum": "h1:other"}\'; fi')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(NotReady, match=r"etcd.*has the checksum h1:other, not h1:U2"):
        installing.go_program(tmp_path / "home", installing.ETCD)
    assert not installing.ETCD.place(tmp_path / "home").exists()


def test_a_tool_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_tool(tmp_path, "tool", "echo no network >&2; exit 3")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(NotReady, match="tool get: exit code 3: no network"):
        installing.run(["tool", "get"], tmp_path)
    fake_tool(tmp_path, "tool", "exec sleep 60")
    monkeypatch.setattr(installing, "INSTALL_SECONDS_MAX", 0.05)
    with pytest.raises(NotReady, match=r"tool took longer than 0.05 s"):
        installing.run(["tool"], tmp_path)


def nodes(tmp_path: Path, script: str) -> Nodes:
    return Nodes(tmp_path, {"n1": [sys.executable, "-u", "-c", script]})


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_nodes_are_killed_started_again_and_ended(tmp_path: Path) -> None:
    here = nodes(tmp_path, "import signal; signal.pause()")
    here.start_all()
    first = here.processes["n1"]
    here.kill("n1")
    assert first.returncode == -signal.SIGKILL
    here.check_alive()  # a node that was killed excuses itself
    here.start("n1")
    second = here.processes["n1"]
    here.stop()
    assert is_gone(first.pid)
    assert is_gone(second.pid)
    here.stop()


def test_a_node_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.peers.nodes.STOP_SECONDS", 0.2)
    script = "import signal; signal.signal(15, signal.SIG_IGN); print('ready'); signal.pause()"
    here = nodes(tmp_path, script)
    here.start_all()

    async def is_ready() -> bool:
        return "ready" in (tmp_path / "n1.log").read_text()

    asyncio.run(here.until(is_ready, "the node"))
    process = here.processes["n1"]
    here.stop()
    assert process.returncode == -signal.SIGKILL


async def never() -> bool:
    return False


def test_nobody_waits_for_good(tmp_path: Path) -> None:
    here = nodes(tmp_path, "import signal; signal.pause()")
    here.start_all()
    try:
        with pytest.raises(NotReady, match=r"a leader did not come within 0.05 s"):
            asyncio.run(here.until(never, "a leader", 0.05))
    finally:
        here.stop()


def test_nobody_waits_for_a_node_that_ended(tmp_path: Path) -> None:
    here = nodes(tmp_path, "raise SystemExit('the port is taken')")
    here.start_all()
    with pytest.raises(NotReady, match="n1 ended with exit code 1; its log ends with: the port"):
        asyncio.run(here.until(never, "a leader", 60.0))


MACHINE = page.Machine(2, "a processor", "6.1", "3.11.7", 1.5)


def written(found: Results, peers: Sequence[Peer], *, is_quick: bool = False) -> str:
    run = page.Run("2030-01-02", 3, QUICK if is_quick else FULL, MACHINE)
    return page.page(peers, found, run)


def test_the_page_tells_what_was_compared_and_what_was_left_out() -> None:
    found = results(dledger=[20.0], other=[5.0])
    found.versions["other"] = "v1.2"
    found.leave_out("third is left out: " + "not on the PATH: java " * 8)
    text = written(found, [Fake("dledger"), Fake("other"), Fake("third")])
    assert "| figure | dledger | other |" in text, "who has no figure has no column"
    assert "| *who has synced* | *nobody syncs* | *nobody syncs* |" in text
    assert "| backlog by one consumer, msg/s | 20 | 5 (4) |" in text
    assert "- **other** v1.2: nobody syncs. It is fast." in text
    assert "2030-01-02: 3 rounds, 2 cores of a processor, Linux 6.1, Python 3.11.7" in text
    assert "1.5 ms" in text
    assert "- third is left out: not on the PATH: java" in text
    assert "Do not quote" not in text
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    assert max(map(len, prose)) <= page.COLUMNS_MAX


def test_a_quick_page_is_not_to_be_quoted() -> None:
    text = written(results(dledger=[1.0]), [Fake("dledger")], is_quick=True)
    assert "Do not quote its figures." in " ".join(text.split())
    assert text.endswith("## What is left out\n\nNothing.\n")


@pytest.mark.parametrize(
    ("value", "text"), [(123456.7, "123,457"), (99.95, "100"), (12.34, "12.3"), (0.0649, "0.0649")]
)
def test_values_have_three_digits(value: float, text: str) -> None:
    assert page.short(value) == text


def test_the_command_line_names_what_it_does_not_know() -> None:

    app = typer.Typer()
    app.command()(command.main)
    done = CliRunner().invoke(app, ["--only", "dledger,zookeeper"])
    assert done.exit_code == 2
    assert "no system 'zookeeper'; there are dledger," in " ".join(done.output.split())


def test_only_what_is_pinned_is_installed() -> None:
    lock = Path(installing.__file__).with_name("requirements.lock").read_text()
    pinned = [line for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    assert pinned
    assert all("==" in line for line in pinned)
    assert lock.count("--hash=sha256:") >= len(pinned)
    assert "://" not in lock
