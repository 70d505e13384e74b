"""Single messages without client batching: one stream with a window, and 64 unary callers.

Beside each: a bare echo server asked in the same way with messages of the same size.
"""

from functools import partial

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared
from bench.setup import floors
from bench.setup.callers import call_rate
from bench.setup.cluster import Running, running
from bench.setup.native import TRY_MS, Batches, Window, plain_records, pour_for, register
from dledger_proto.rpc import raw
from dledger_proto.rpc.frames import encode_append, parse_answers

WINDOW = 256
CALLERS = 64


async def measure(effort: Effort) -> list[Figure]:
    """Measure in turn: our stream, the echo's; our unary calls, the echo's."""
    rounds = Rounds()
    async with running(effort.folder) as here, floors.echo_server() as echo:
        topic = await here.create_topic("single", queues=4)
        size = await _message_size(here, topic)
        for _ in range(effort.runs):
            window = Window(WINDOW, batches_per_frame=1)
            poured = await pour_for(here, topic, plain_records(1), window, effort.seconds)
            rounds.add("stream", poured.rate)
            rounds.add("echo stream", await floors.echo_stream_rate(echo, effort.seconds, size))
            rounds.add("unary", await _unary_rate(here, topic, effort.seconds))
            rounds.add("echo unary", await floors.echo_unary_rate(echo, effort.seconds, size))
    return [
        compared(
            "single_stream", rounds["stream"], "records/s", "bare echo stream",
            rounds["echo stream"], ">=", 0.5, note=f"window {WINDOW}, a message for each record",
        ),
        compared(
            "single_unary", rounds["unary"], "calls/s", "bare echo calls",
            rounds["echo unary"], ">=", 0.5, note=f"{CALLERS} callers, warmed up",
        ),
    ]  # fmt: skip


async def _message_size(here: Running, topic: bytes) -> int:
    batches = await register(here, await here.leader(), topic, 0, plain_records(1))
    return len(encode_append([batches.make()], 0, TRY_MS))


async def _unary_rate(here: Running, topic: bytes, seconds: float) -> float:
    """Return calls per second; every caller is a producer of its own."""
    leader = await here.leader()
    call = raw.raw_unary(here.channel(leader), raw.APPEND_ONE)
    makers = [
        await register(here, leader, topic, number % 4, plain_records(1))
        for number in range(CALLERS)
    ]

    async def send(maker: Batches) -> None:
        frame = encode_append([maker.make()], 0, TRY_MS)
        answer = await call(frame, metadata=here.metadata)
        error = parse_answers(answer)[0].error()
        if error is not None:
            raise error

    return await call_rate([partial(send, maker) for maker in makers], seconds)
