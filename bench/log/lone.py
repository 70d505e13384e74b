"""A lone synchronous send: nothing else in flight.

Beside it: what it is made of at best (a client's round trip, a peer's round trip, one fdatasync),
and replication with nothing in it (`bare`), which shows how near to that three processes come.
"""

import asyncio

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared, percentile, stated
from bench.setup import bare, floors
from bench.setup.blocking import sending
from bench.setup.cluster import NotReady, Running, running
from bench.setup.native import Window, plain_records, pour_for
from bench.setup.users import lone_for
from dledger_client import AsyncProducer

TOPIC = "lone"
START_SECONDS = 1.0
"""About the time that a process needs until its first message is stored."""


async def measure(effort: Effort) -> list[Figure]:
    """Measure in turn: a batch of one on the bare wire, `send` of both clients, the floor."""
    rounds = Rounds()
    async with (
        running(effort.folder) as here,
        floors.echo_server() as echo,
        bare.group(effort.folder) as bare_group,
        AsyncProducer(here.cluster.name_server) as producer,
    ):
        topic = await here.create_topic(TOPIC)
        await lone_for(producer, TOPIC, 0.5)
        for _ in range(effort.runs):
            await _ours(here, topic, producer, effort, rounds)
            echo_seconds = await floors.echo_round_trip(echo)
            rounds.add("bare", await floors.echo_round_trip(bare_group) * 1000)
            sync_seconds = floors.one_fdatasync(effort.folder)
            rounds.add("floor", (2 * echo_seconds + sync_seconds) * 1000)
            rounds.add("echo", echo_seconds * 1000)
            rounds.add("fdatasync", sync_seconds * 1000)
    floor = "client echo + peer echo + fdatasync"
    figures = [
        compared(f"lone_{name}_p50", rounds[f"{name} p50"], "ms", floor, rounds["floor"], "<=", 2.0)
        for name in ("append", "async_send", "send")
    ]
    figures += [
        compared("bare_replication", rounds["bare"], "ms", floor, rounds["floor"]),
        compared("lone_append_p50", rounds["append p50"], "ms", "bare replication", rounds["bare"]),
    ]
    figures += [
        stated(f"lone_{name}_p99", rounds[f"{name} p99"], "ms")
        for name in ("append", "async_send", "send")
    ]
    figures += [stated(f"floor_{name}", rounds[name], "ms") for name in ("echo", "fdatasync")]
    return figures


async def _ours(
    here: Running, topic: bytes, producer: AsyncProducer, effort: Effort, rounds: Rounds
) -> None:
    poured = await pour_for(here, topic, plain_records(1), Window(1), effort.seconds)
    _add(rounds, "append", poured.batch_seconds)
    _add(rounds, "async_send", await lone_for(producer, TOPIC, effort.seconds))
    async with sending(here.cluster.name_server, TOPIC) as acks:
        await asyncio.sleep(START_SECONDS + effort.seconds)
    if acks.failures:
        raise NotReady(f"{len(acks.failures)} sends failed: {acks.failures[0]}")
    # The first ones look for the leader and open the stream.
    _add(rounds, "send", acks.seconds[len(acks.seconds) // 10 :])


def _add(rounds: Rounds, name: str, seconds: list[float]) -> None:
    rounds.add(f"{name} p50", percentile(seconds, 0.5) * 1000)
    rounds.add(f"{name} p99", percentile(seconds, 0.99) * 1000)
