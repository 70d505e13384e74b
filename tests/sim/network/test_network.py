"""The network's weather, in virtual time: what is delayed, what is lost, who learns of an end."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest

from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import make_server, open_channel
from tests.sim.network.calls.patching import simulated_grpc
from tests.sim.network.machines import Machines
from tests.sim.process.loop import ProcessLoop

KEEPALIVE = 10.0
KEEPALIVE_TIMEOUT = 1.0
OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_500),
    ("grpc.max_reconnect_backoff_ms", 800),
)
PORT = 7
ADDRESS = f"b:{PORT}"
HEAR = "/test.Service/Hear"


class Talk:
    """Host a writes to host b, on the stream of a call."""

    def __init__(self, seed: int = 1) -> None:
        self.machines = Machines(seed)
        self.network = self.machines.network
        self.a = self.machines.start("a")
        self.b = self.machines.start("b")
        self.got: list[int] = []
        self.heard_end = 0.0
        self.told_end = 0.0
        self.call: Any = None
        self._kept: list[Any] = []
        self.serve(self.b)
        self.now(self.a, self.dial)
        self.run(0.5)

    def now(self, loop: ProcessLoop, work: Callable[[], Any]) -> list[Any]:
        async def run() -> Any:
            return await work()

        with simulated_grpc():
            return self.machines.spawn(loop, run)

    def run(self, seconds: float) -> None:
        with simulated_grpc():
            self.machines.run(seconds)

    @property
    def time(self) -> float:
        return self.machines.scheduler.now

    def serve(self, loop: ProcessLoop) -> None:
        async def serve() -> None:
            server = make_server(OPTIONS)
            service, _, name = HEAR[1:].partition("/")
            method = raw.StreamMethod(self._hear)
            server.add_generic_rpc_handlers((raw.raw_handlers(service, {name: method}),))
            server.add_insecure_port(f"0.0.0.0:{PORT}")
            await server.start()
            self._kept.append(server)

        self.now(loop, serve)
        self.run(0.01)

    async def _hear(self, _requests: object, context: raw.RawContext) -> None:
        receive: Any = context.read
        try:
            await context.send_initial_metadata(())
            while isinstance(message := await receive(), bytes):
                self.got.append(int(message))
            await asyncio.Event().wait()
        finally:
            self.heard_end = self.time

    async def dial(self) -> None:
        def ended(_call: object) -> None:
            self.told_end = self.time

        channel = open_channel(ADDRESS, OPTIONS)
        self.call = raw.raw_stream(channel, HEAR)()
        self.call.add_done_callback(ended)
        await self.call.initial_metadata()

    def write(self, *numbers: int) -> None:
        async def write() -> None:
            for number in numbers:
                await self.call.write(b"%d" % number)

        self.now(self.a, write)
        self.run(0.0001)

    def error(self) -> str:
        """Return how the call ended."""
        asked = self.now(self.a, lambda: self.call.details())
        self.run(0.01)
        return str(asked[0].result())


def test_cut_only_delays_a_stream() -> None:
    """TCP sends again: nothing is lost, all is in order, also what was under way at both ends."""
    random = Random(1)
    for seed in range(50):
        talk = Talk(seed)
        talk.write(1, 2)
        talk.network.cut("a", "b")
        talk.write(3, 4)
        talk.run(0.5)
        assert 3 not in talk.got
        talk.write(5)
        talk.network.heal("a", "b")
        talk.write(6, 7)
        talk.network.cut("a", "b")
        talk.write(8)
        talk.run(random.uniform(0.0, 0.5))
        talk.network.heal("a", "b")
        talk.write(9)
        talk.run(2.0)
        assert talk.got == [1, 2, 3, 4, 5, 6, 7, 8, 9]
        talk.run(60.0)
        assert not talk.told_end


@pytest.mark.parametrize("direction", [("a", "b"), ("b", "a")])
def test_keepalive_notices_a_cut(direction: tuple[str, str]) -> None:
    """Both ends ping; each gives up within its times, wherever the cut is."""
    for seed in range(10):
        talk = Talk(seed)
        since = talk.time
        talk.network.cut(*direction)
        talk.run(KEEPALIVE + KEEPALIVE_TIMEOUT + 0.1)
        for noticed in (talk.told_end, talk.heard_end):
            assert KEEPALIVE_TIMEOUT <= noticed - since <= KEEPALIVE + KEEPALIVE_TIMEOUT + 0.01
        assert talk.error() == "keepalive watchdog timeout"


def test_held_messages_come_in_order() -> None:
    talk = Talk()
    talk.network.hold("a", "b")
    talk.write(1, 2, 3)
    talk.run(30.0)
    assert talk.got == []
    talk.network.release("a", "b")
    talk.write(4)
    talk.run(0.1)
    assert talk.got == [1, 2, 3, 4]


def test_held_messages_of_a_broken_connection_are_lost() -> None:
    talk = Talk()
    talk.network.hold("a", "b")
    talk.write(1, 2, 3)
    talk.network.break_connections("a", "b")
    talk.run(0.1)
    talk.network.release("a", "b")
    talk.run(1.0)
    assert talk.got == []


def test_reset_is_learned_at_both_ends() -> None:
    """What is under way is lost; the other direction's connections stand."""
    talk = Talk()
    talk.network.break_connections("b", "a")
    talk.run(0.1)
    assert not talk.told_end
    since = talk.time
    talk.write(1)
    talk.network.break_connections("a", "b")
    talk.run(0.1)
    assert talk.got == []
    assert since < talk.told_end < since + 0.005
    assert since < talk.heard_end < since + 0.005
    assert talk.error() == "recvmsg:Connection reset by peer"


def test_killed_dialler() -> None:
    """Its peer learns it at once, in some runs after the messages that were under way."""
    outcomes = set()
    for seed in range(20):
        talk = Talk(seed)
        talk.write(1)
        since = talk.time
        talk.machines.end(talk.a)
        talk.run(0.1)
        assert since < talk.heard_end < since + 0.006
        outcomes.add(tuple(talk.got))
    assert outcomes == {(), (1,)}


def test_killed_listener() -> None:
    """A new dial is refused after a round trip."""
    talk = Talk()
    since = talk.time
    talk.machines.end(talk.b)
    talk.run(0.1)
    assert since < talk.told_end < since + 0.006
    refused = talk.now(talk.a, talk.dial)
    talk.run(0.1)
    assert refused[0].done()
    assert "Connection refused" in talk.error()


def test_machine_without_power() -> None:
    """Keepalive notices, or the kernel of the machine that starts again says it."""
    talk = Talk()
    since = talk.time
    talk.machines.end(talk.b, silent=True)
    talk.run(KEEPALIVE_TIMEOUT)
    assert not talk.told_end
    talk.machines.start("b")
    talk.run(0.01)
    talk.write(1)
    talk.run(0.1)
    assert talk.told_end - since < KEEPALIVE_TIMEOUT + 0.1
    assert talk.got == []

    talk = Talk()
    since = talk.time
    talk.machines.end(talk.b, silent=True)
    talk.run(KEEPALIVE + KEEPALIVE_TIMEOUT + 0.1)
    assert KEEPALIVE_TIMEOUT <= talk.told_end - since <= KEEPALIVE + KEEPALIVE_TIMEOUT + 0.01


def test_paused_process() -> None:
    """It takes everything when it runs again; if that is too late, keepalive has given it up."""
    talk = Talk()
    talk.b.pause()
    talk.write(*range(10))
    talk.run(KEEPALIVE_TIMEOUT - 0.1)
    assert talk.got == []
    talk.b.resume()
    talk.run(0.1)
    assert talk.got == list(range(10))
    talk.run(60.0)
    assert not talk.told_end

    talk = Talk()
    since = talk.time
    talk.b.pause()
    talk.run(KEEPALIVE + KEEPALIVE_TIMEOUT + 0.1)
    assert KEEPALIVE_TIMEOUT <= talk.told_end - since <= KEEPALIVE + KEEPALIVE_TIMEOUT + 0.01


def test_window_of_a_paused_process() -> None:
    """A writer stops when the window is full, and goes on with the reader."""
    talk = Talk()
    written: list[int] = []

    async def write() -> None:
        for number in range(300):
            await talk.call.write(b"%01000d" % number)
            written.append(number)

    talk.b.pause()
    talk.now(talk.a, write)
    talk.run(0.5)
    assert 50 < len(written) < 80
    talk.b.resume()
    talk.run(1.0)
    assert talk.got == list(range(300))


def test_dial_without_an_answer() -> None:
    """An attempt ends with its time. The next one finds the network healed."""
    talk = Talk()
    talk.network.cut("b", "a")
    since = talk.time
    asked = talk.now(talk.a, lambda: raw.raw_unary(open_channel(ADDRESS, OPTIONS), "/x/Y")(b""))
    talk.run(1.4)
    assert not asked[0].done()
    talk.run(0.2)
    assert asked[0].exception().code() is grpc.StatusCode.UNAVAILABLE
    assert "Timeout occurred" in asked[0].exception().details()
    waiting = talk.now(
        talk.a,
        lambda: raw.raw_unary(open_channel(ADDRESS, OPTIONS), "/x/Y")(b"", wait_for_ready=True),
    )
    talk.run(5.0)
    assert not waiting[0].done()
    talk.network.heal("b", "a")
    talk.run(2.5)
    assert waiting[0].exception().code() is grpc.StatusCode.UNIMPLEMENTED
    assert since < talk.time


def test_back_off() -> None:
    """The pauses between attempts grow to their bound, give or take a fifth."""
    machines = Machines()
    loop = machines.start("a")

    async def watch() -> None:
        channel = open_channel("nowhere:1", OPTIONS)
        channel.get_state(try_to_connect=True)
        await asyncio.Event().wait()

    with simulated_grpc():
        machines.spawn(loop, watch)
        machines.run(60.0)
    times = [float(line.split()[0]) for line in machines.lines if "Connection refused" in line]
    pauses = [after - before for before, after in pairwise(times)]
    assert 0.07 < pauses[0] < 0.13
    assert 0.8 * 0.8 - 0.01 < min(pauses[10:]) < max(pauses) < 0.8 * 1.2 + 0.01


def test_weather_of_links_touches_no_call() -> None:
    """What a Raft link loses, repeats and gets late comes in order on the streams of calls."""
    numbers = list(range(400))
    talk = Talk()
    path = talk.network.path("a", "b")
    path.loss, path.repeat, path.reorder = 0.1, 0.1, 0.1
    talk.write(*numbers)
    talk.run(1.0)
    assert talk.got == numbers


def test_dead_process_sends_nothing() -> None:
    """What is left of a killed process acts no more, also when its coroutines are closed."""
    talk = Talk()
    call = talk.call

    async def write_at_the_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await call.write(b"1")

    talk.now(talk.a, write_at_the_end)
    talk.run(0.1)
    talk.machines.end(talk.a)
    steps = talk.machines.scheduler.steps
    talk.a.discard()
    call.cancel()
    talk.run(0.1)
    assert talk.got == []
    assert talk.machines.scheduler.steps - steps < 10


def test_heal_all() -> None:
    talk = Talk()
    network = talk.network
    network.cut("b", "a")
    network.hold("a", "b")
    network.path("a", "b").loss = 1.0
    network.heal_all()
    talk.write(1)
    talk.run(60.0)
    assert talk.got == [1]
    assert not talk.told_end


def rough_weather(seed: int) -> list[str]:
    """Return all that happens in a run with every fault."""
    talk = Talk(seed)
    network, random = talk.network, Random(seed)
    path = network.path("a", "b")
    path.loss, path.repeat, path.reorder = 0.1, 0.1, 0.1
    lines = talk.machines.lines
    for number in range(60):
        talk.machines.strike(random, "a", talk.b)
        if talk.call.done():
            talk.now(talk.a, talk.dial)
        talk.write(number)
        talk.run(random.uniform(0.0, 3.0))
        lines.append(f"{talk.time:.6f} {talk.got[-3:]} {talk.told_end:.6f} {talk.heard_end:.6f}")
    lines.append(f"{sorted(network.counts.items())} {network.delivered}")
    return lines


def test_determinism() -> None:
    """One seed, one story; another seed, another story."""
    first = rough_weather(3)
    assert rough_weather(3) == first
    assert rough_weather(4) != first
    assert any("keepalive" in line for line in first)
