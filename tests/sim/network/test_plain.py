"""Plain connections in memory: what links between members meet, in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from dledger.raft.links.frame_stream import BUFFER_BYTES, FrameStream
from dledger.types import Buffer
from tests.sim.network.machines import Machines
from tests.sim.process.loop import ProcessLoop

KEEPALIVE, KEEPALIVE_TIMEOUT = 10.0, 1.0
PORT = 7
FRAME_MAX = 1 << 20


class End:
    """One end of a connection, and what it was told."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.got: list[bytes] = []
        self.ended = 0.0
        self.reason = ""
        self.had_room = 0
        self.stream = FrameStream(self, FRAME_MAX)

    def opened(self, stream: FrameStream) -> None:
        assert stream is self.stream

    def frame_came(self, frame: Buffer) -> None:
        self.got.append(bytes(frame))

    def too_large(self, reason: str) -> None:
        raise AssertionError(reason)

    def writable(self) -> None:
        self.had_room += 1

    def closed(self, reason: str) -> None:
        self.ended, self.reason = self._now(), reason


class Link:
    """Host a writes to host b, as the dialler of a link does: its first frame is its greeting."""

    def __init__(self, seed: int = 1) -> None:
        self.machines = Machines(seed)
        self.network = self.machines.network
        self.a = self.machines.start("a")
        self.b = self.machines.start("b")
        self.far = self.near = End(lambda: self.time)
        self.now(self.b, self._serve)
        self.run(0.01)
        self.dial()

    @property
    def time(self) -> float:
        return self.machines.scheduler.now

    @property
    def got(self) -> list[int]:
        return [int(frame) for frame in self.far.got]

    def now(self, loop: ProcessLoop, work: Callable[[], Coroutine[Any, Any, Any]]) -> list[Any]:
        return self.machines.spawn(loop, work)

    def run(self, seconds: float) -> None:
        self.machines.run(seconds)

    async def _serve(self) -> None:
        def accept() -> FrameStream:
            self.far = End(lambda: self.time)
            return self.far.stream

        await asyncio.get_running_loop().create_server(accept, "0.0.0.0", PORT)

    def dial(self) -> list[Any]:
        async def dial() -> None:
            self.near = End(lambda: self.time)
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: self.near.stream, "b", PORT)
            self.near.stream.write([b"0"])

        asked = self.now(self.a, dial)
        self.run(0.1)
        return asked

    def write(self, *numbers: int) -> None:
        async def write() -> None:
            for number in numbers:
                self.near.stream.write([b"%d" % number])

        self.now(self.a, write)
        self.run(0.0001)


def test_frames_of_any_size_arrive_whole() -> None:
    """Also those that are larger than the buffer, and in whatever parts they come."""
    random = Random(1)
    for seed in range(20):
        link = Link(seed)
        sizes = (0, 1, 3, 5_000, BUFFER_BYTES - 4, BUFFER_BYTES - 3, BUFFER_BYTES, 300_000)
        frames = [random.randbytes(random.choice(sizes)) for _ in range(40)]

        async def write(link: Link = link, frames: list[bytes] = frames) -> None:
            for frame in frames:
                at = random.randrange(len(frame) + 1)
                link.near.stream.write([frame[:at], frame[at:]])

        link.now(link.a, write)
        link.run(2.0)
        assert link.far.got == [b"0", *frames]
        assert link.near.had_room >= 1
        assert not link.near.stream.is_full


def test_weather_of_links() -> None:
    """Frames are lost, repeated, late; the greeting is not, nor what the listener says."""
    numbers = list(range(1, 400))
    link = Link()
    path = link.network.path("a", "b")
    path.loss, path.repeat, path.reorder = 0.1, 0.1, 0.1
    link.write(*numbers)
    link.run(1.0)
    assert 0.8 * 400 < len(set(link.got)) < 0.97 * 400
    assert len(link.got) > len(set(link.got))
    assert link.got != sorted(link.got)
    link.network.quiet()
    link.far.got.clear()
    link.write(*numbers)
    link.run(1.0)
    assert link.got == numbers


def test_cut_of_a_link_loses_frames() -> None:
    """A link that outlives a cut has a gap."""
    link = Link()
    link.network.cut("a", "b")
    link.write(1, 2)
    link.run(0.5)
    link.network.heal("a", "b")
    link.write(3)
    link.run(1.0)
    assert link.got == [0, 3]


def test_scripted_frames() -> None:
    """A script withholds, replaces and injects frames; cut and hold do not stop what it injects."""
    link = Link()
    seen: list[tuple[str, str, bytes]] = []

    def script(source: str, target: str, frame: bytes) -> list[bytes]:
        seen.append((source, target, frame))
        return {b"1": [], b"2": [b"20", b"21"]}.get(frame, [frame])

    link.network.on_link_frame = script
    link.write(1, 2, 3)
    link.run(0.1)
    assert link.got == [0, 20, 21, 3]
    assert seen == [("a", "b", b"1"), ("a", "b", b"2"), ("a", "b", b"3")]
    link.network.cut("a", "b")
    link.network.inject("a", "b", b"7")
    link.network.inject("b", "a", b"8")
    link.run(0.1)
    assert link.got == [0, 20, 21, 3, 7]
    link.machines.end(link.b)
    link.network.inject("a", "b", b"9")
    link.run(0.1)
    assert link.got == [0, 20, 21, 3, 7]


def test_a_closed_end_is_told_at_once() -> None:
    """And whoever closes is told, too; what was written before arrives."""
    link = Link()

    async def close() -> None:
        link.near.stream.write([b"5"])
        link.near.stream.close("enough", at_once=False)

    link.now(link.a, close)
    link.run(0.1)
    assert link.got == [0, 5]
    assert link.near.reason == "enough"
    assert link.far.reason == "closed by the peer"


def test_the_kernel_notices_a_machine_that_is_gone() -> None:
    """Within its times; a process that stands still is answered for."""
    link = Link()
    link.b.pause()
    link.run(60.0)
    assert not link.near.ended
    link.b.resume()
    since = link.time
    link.machines.end(link.b, silent=True)
    link.run(60.0)
    assert KEEPALIVE_TIMEOUT <= link.near.ended - since <= KEEPALIVE + KEEPALIVE_TIMEOUT + 0.01


def test_a_refused_and_an_unanswered_dial() -> None:
    link = Link()
    link.machines.end(link.b)
    assert isinstance(link.dial()[0].exception(), ConnectionRefusedError)
    link.network.cut("a", "b")
    asked = link.dial()
    link.run(30.0)
    assert not asked[0].done()


def rough_weather(seed: int) -> list[str]:
    """Return all that happens in a run with every fault."""
    link = Link(seed)
    network, random = link.network, Random(seed)
    path = network.path("a", "b")
    path.loss, path.repeat, path.reorder = 0.1, 0.1, 0.1
    lines = link.machines.lines
    for number in range(60):
        link.machines.strike(random, "a", link.b)
        if link.near.ended:
            link.dial()
        link.write(number)
        link.run(random.uniform(0.0, 3.0))
        lines.append(f"{link.time:.6f} {link.got[-3:]} {link.near.ended:.6f} {link.far.ended:.6f}")
    lines.append(f"{sorted(network.counts.items())} {network.delivered}")
    return lines


def test_determinism() -> None:
    """One seed, one story; another seed, another story."""
    first = rough_weather(3)
    assert rough_weather(3) == first
    assert rough_weather(4) != first
