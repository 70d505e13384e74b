"""What TLS costs: a cluster with it beside one without, in turn. Throughput, and a lone send.

With TLS all is encrypted: the links of the members, and what clients send and hear.
"""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared, percentile
from bench.log.append import WARM_SECONDS, WINDOWS
from bench.setup.cluster import Running, running
from bench.setup.native import Poured, Window, plain_records, pour_for
from bench.setup.users import lone_for, submit_for
from dledger_client import AsyncProducer, ProducerConfig

TOPIC: Final = "secure"
RATES: Final = (*(f"append_{size}" for size in WINDOWS), "submit")
TIMES: Final = ("lone_append", "lone_send")
BESIDE: Final = "without TLS"
RATE_MIN: Final = 0.7
TIME_MAX: Final = 1.3


@dataclass(frozen=True, slots=True)
class Side:
    """A cluster, with TLS or without, its topic, and a producer."""

    name: str
    here: Running
    topic: bytes
    producer: AsyncProducer

    async def measure(self, effort: Effort, rounds: Rounds) -> None:
        """Measure everything once."""
        for size, window in WINDOWS.items():
            poured = await self._poured(size, window, effort)
            rounds.add(f"{self.name} append_{size}", poured.rate)
        rate = await submit_for(self.producer, TOPIC, effort.seconds)
        rounds.add(f"{self.name} submit", rate)
        alone = (await self._poured(1, Window(1), effort)).batch_seconds
        rounds.add(f"{self.name} lone_append", percentile(alone, 0.5) * 1000)
        sent = await lone_for(self.producer, TOPIC, effort.seconds)
        rounds.add(f"{self.name} lone_send", percentile(sent, 0.5) * 1000)

    async def _poured(self, size: int, window: Window, effort: Effort) -> Poured:
        records = plain_records(size)
        return await pour_for(self.here, self.topic, records, window, effort.seconds)


async def measure(effort: Effort) -> list[Figure]:
    """Measure both in turn, each first in every second round."""
    rounds = Rounds()
    async with AsyncExitStack() as up:
        sides = [
            await _side(up, effort, name, secure=secure)
            for name, secure in (("plain", False), ("tls", True))
        ]
        for number in range(effort.runs):
            for side in sides if number % 2 else reversed(sides):
                await side.measure(effort, rounds)
    figures = [
        compared(
            f"tls_{name}", rounds[f"tls {name}"], "records/s", BESIDE, rounds[f"plain {name}"],
            ">=", RATE_MIN,
        )
        for name in RATES
    ]  # fmt: skip
    return figures + [
        compared(
            f"tls_{name}_p50", rounds[f"tls {name}"], "ms", BESIDE, rounds[f"plain {name}"],
            "<=", TIME_MAX,
        )
        for name in TIMES
    ]  # fmt: skip


async def _side(up: AsyncExitStack, effort: Effort, name: str, *, secure: bool) -> Side:
    here = await up.enter_async_context(running(effort.folder, secure=secure))
    config = ProducerConfig(connection=here.connection)
    producer = await up.enter_async_context(AsyncProducer(here.cluster.name_server, config))
    side = Side(name, here, await here.create_topic(TOPIC, queues=4), producer)
    await submit_for(producer, TOPIC, WARM_SECONDS)
    return side
