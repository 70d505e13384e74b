"""Links between members in virtual time: what is dialled when, and what the group is told."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from random import Random
from typing import Any, cast

from dledger.log.commit_log import CommitLog
from dledger.raft.links.frame_stream import FrameStream
from dledger.raft.links.greeting import LinkIdentity, encode_answer
from dledger.raft.links.peer_address import PeerAddress
from dledger.raft.links.peer_link import LASTING_SECONDS, LinkSettings, PeerLink
from dledger.raft.links.peer_listener import LinkTarget, PeerListener
from dledger.raft.wire.messages import Message, TermNotice
from dledger.types import Buffer, MemberId
from tests.list_trace import ListTrace
from tests.sim.network.calls.patching import simulated_grpc
from tests.sim.network.machines import Machines
from tests.sim.process.loop import ProcessLoop

A, B = MemberId("a"), MemberId("b")
EMPTY: Mapping[MemberId, PeerLink] = {}


class LinkLog:
    """Keeps what a peer link told, each with its time."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self.seen: list[tuple[str, float]] = []
        self.terms: list[int] = []

    def _note(self, what: str) -> None:
        self.seen.append((what, self._machines.scheduler.now))

    def link_up(self, peer: MemberId) -> None:
        self._note("up")

    def link_down(self, peer: MemberId) -> None:
        self._note("down")

    def dial_failed(self, peer: MemberId) -> None:
        self._note("failed")

    def received(self, peer: MemberId, message: Message) -> None:
        assert isinstance(message, TermNotice)
        self.terms.append(message.term)

    def failed(self, error: BaseException) -> None:
        raise AssertionError("a link read its log") from error


def link_to_b(events: LinkLog) -> PeerLink:
    return PeerLink(
        LinkIdentity("c", "g", A, bytes(16)), B, "b:5", events, cast("CommitLog", None),
        cast("Executor", None), Random(1), ListTrace(), LinkSettings(),
    )  # fmt: skip


async def listen_as_b(heard: LinkLog, links: Mapping[MemberId, PeerLink] = EMPTY) -> None:
    listener = PeerListener("c", ListTrace())
    listener.add_group("g", LinkTarget(B, frozenset({A}), heard, links))
    await listener.listen("0.0.0.0:5")


def linked(machines: Machines, *, end: str) -> tuple[LinkLog, LinkLog, ProcessLoop]:
    """Link a to b, send 20 notices, then let b end: "kill" or "pause"."""
    home, away = machines.start("b"), machines.start("a")
    events, heard = LinkLog(machines), LinkLog(machines)
    link = link_to_b(events)

    async def listen() -> None:
        await listen_as_b(heard)

    def send() -> None:
        for term in range(1, 21):
            link.send(TermNotice(term, session=1, sequence=term))

    machines.spawn(home, listen)
    machines.run(0.1)
    away.run_now(link.start)
    machines.run(0.5)
    away.run_now(send)
    machines.run(LASTING_SECONDS)
    if end == "kill":
        machines.end(home)
    else:
        home.pause()
        machines.network.break_connections("a", "b")
    return events, heard, away


def test_peer_link_to_a_killed_member() -> None:
    """The link is down at once, and so is the news that the redial was refused (D17)."""
    machines = Machines()
    with simulated_grpc():
        events, heard, _ = linked(machines, end="kill")
        killed = machines.scheduler.now
        machines.run(0.1)
    assert heard.terms == list(range(1, 21))
    assert [what for what, _ in events.seen] == ["up", "down", "failed"]
    assert events.seen[-1][1] - killed < 0.02


def test_peer_link_to_a_member_that_stands_still() -> None:
    """The redial is given up after its own short time, and back-off goes on without news."""
    machines = Machines()
    with simulated_grpc():
        events, _, away = linked(machines, end="pause")
        broken = machines.scheduler.now
        machines.run(5.0)
        assert [what for what, _ in events.seen] == ["up", "down", "failed"]
        assert 0.05 < events.seen[-1][1] - broken < 0.07
        machines.end(away)
    assert machines.errors == []


class Breaker:
    """A listener's end that accepts whoever dials, and closes at once."""

    def __init__(self, accepted: list[float]) -> None:
        self._accepted = accepted
        self.stream = FrameStream(self, 1_000)

    def opened(self, stream: FrameStream) -> None:
        pass

    def frame_came(self, frame: Buffer) -> None:
        self._accepted.append(asyncio.get_running_loop().time())
        self.stream.write([encode_answer("")])
        self.stream.close("of another version", at_once=False)

    def too_large(self, reason: str) -> None:
        pass

    def writable(self) -> None:
        pass

    def closed(self, reason: str) -> None:
        pass


class SlowToAccept(Breaker):
    """A listener's end that accepts so many seconds after the greeting."""

    def __init__(self, accepted: list[float], seconds: float) -> None:
        super().__init__(accepted)
        self._seconds = seconds

    def frame_came(self, frame: Buffer) -> None:
        loop = asyncio.get_running_loop()
        self._accepted.append(loop.time())
        loop.call_later(self._seconds, lambda: self.stream.write([encode_answer("")]))


def test_a_redial_that_is_slow_is_neither_given_up_nor_repeated() -> None:
    """The group is told after its own short time; the same dial then becomes the link."""
    machines = Machines()
    greeted: list[float] = []
    ends: list[SlowToAccept] = []
    with simulated_grpc():
        home, away = machines.start("b"), machines.start("a")
        events = LinkLog(machines)
        link = link_to_b(events)

        def accept() -> FrameStream:
            ends.append(SlowToAccept(greeted, 0.4 if ends else 0.0))
            return ends[-1].stream

        async def listen() -> None:
            await asyncio.get_running_loop().create_server(accept, "0.0.0.0", 5)

        machines.spawn(home, listen)
        machines.run(0.1)
        away.run_now(link.start)
        machines.run(2 * LASTING_SECONDS)
        broken = machines.scheduler.now
        home.run_now(lambda: ends[0].stream.close("broken"))
        machines.run(5.0)
    assert [what for what, _ in events.seen] == ["up", "down", "failed", "up"]
    failed, again = (time - broken for _, time in events.seen[2:])
    assert 0.05 < failed < 0.07
    assert 0.4 < again < 0.5
    assert len(greeted) == 2


def test_a_link_that_breaks_at_once_backs_off() -> None:
    """As for refused dials, up to a second. Hearing the peer does not end it: it may fare alike."""
    machines = Machines()
    accepted: list[float] = []
    with simulated_grpc():
        home, away = machines.start("b"), machines.start("a")
        events = LinkLog(machines)
        link = link_to_b(events)

        async def listen() -> None:
            loop = asyncio.get_running_loop()
            await loop.create_server(lambda: Breaker(accepted).stream, "0.0.0.0", 5)

        machines.spawn(home, listen)
        machines.run(0.1)
        away.run_now(link.start)
        for _ in range(600):
            machines.run(0.1)
            away.run_now(link.peer_heard)
    assert 60 <= len(accepted) < 85
    assert [what for what, _ in events.seen] == ["up", "down"] * len(accepted)


def test_two_processes_of_one_name_take_turns_of_a_second() -> None:
    """Each closes the other's connection: that costs a few lines of log a second, not thousands."""
    machines = Machines()
    told = [LinkLog(machines), LinkLog(machines)]
    with simulated_grpc():
        home = machines.start("b")
        machines.spawn(home, lambda: listen_as_b(LinkLog(machines)))
        machines.run(0.1)
        for host, events in zip(("a", "a2"), told, strict=True):
            machines.start(host).run_now(link_to_b(events).start)
        machines.run(60.0)
    for events in told:
        assert 20 < len(events.seen) < 400


def test_a_young_link_that_cannot_be_dialled_again_is_told_within_the_limit() -> None:
    """D17: the first back-off is shorter than the limit that `link_down` gives a leader."""
    machines = Machines()
    events = LinkLog(machines)
    with simulated_grpc():
        home, away = machines.start("b"), machines.start("a")
        machines.spawn(home, lambda: listen_as_b(LinkLog(machines)))
        machines.run(0.1)
        away.run_now(link_to_b(events).start)
        machines.run(0.1)
        machines.end(home)
        killed = machines.scheduler.now
        machines.run(5.0)
    assert [what for what, _ in events.seen] == ["up", "down", "failed"]
    assert events.seen[-1][1] - killed < 0.06


class Names:
    """Stands in for a loop's getaddrinfo: one name of several hosts, in another order each time."""

    def __init__(self, *hosts: str) -> None:
        self._hosts = list(hosts)
        self.asked = 0

    async def ask(self, _name: str, port: int, **_hints: object) -> list[Any]:
        self.asked += 1
        self._hosts.append(self._hosts.pop(0))
        return [(0, 0, 0, "", (host, port)) for host in self._hosts]


def test_a_silent_host_of_a_name_does_not_hide_the_others() -> None:
    """The next dial begins with another host. A refused one costs no dial of its own."""
    machines = Machines()
    events, names = LinkLog(machines), Names("b", "silent", "gone")
    with simulated_grpc():
        home, away = machines.start("b"), machines.start("a")
        for host in ("silent", "gone"):
            machines.start(host)
        machines.network.cut("a", "silent")
        away.getaddrinfo = names.ask  # type: ignore[assignment,method-assign]
        machines.spawn(home, lambda: listen_as_b(LinkLog(machines)))
        machines.run(0.1)
        away.run_now(link_to_b(events).start)
        machines.run(2.0)
        assert [what for what, _ in events.seen] == ["up"]
        machines.run(LASTING_SECONDS)
        asked = names.asked
        machines.network.break_connections("a", "b")
        machines.run(0.05)
        assert [what for what, _ in events.seen] == ["up", "down", "up"]
        assert names.asked == asked, "no look-up in the redial"


def test_every_host_of_a_name_is_tried_in_turn() -> None:
    """Whatever order the names come in; a link's host comes first when its redial failed."""

    async def run(*found: str, again: bool = False) -> list[str]:
        async def ask(_name: str, port: int, **_hints: object) -> list[Any]:
            return [(0, 0, 0, "", (host, port, 0, 7 * (host == "x"))) for host in found]

        asyncio.get_running_loop().getaddrinfo = ask  # type: ignore[assignment,method-assign]
        return await place.hosts(again=again)

    place = PeerAddress("[::1]:5")
    assert asyncio.run(run("a", "b", "x", again=True)) == ["a", "b", "x%7"]
    place.tries("a")
    assert asyncio.run(run("b", "a", "a")) == ["b", "a"]
    place.tries("b")
    assert asyncio.run(run("b", "a")) == ["b", "a"], "a new round"
    place.tries("b")
    assert asyncio.run(run("b", "a")) == ["a", "b"]
    place.reached("a")
    assert asyncio.run(run(again=True)) == ["a"]
    assert asyncio.run(run("c", "b", "a")) == ["a", "c", "b"]
