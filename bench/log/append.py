"""Batched append: three members and the producer on this machine, fdatasync on a majority.

Beside it: the speed prototype, and three plain writers that share the disk.
"""

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared, stated
from bench.setup.cluster import running
from bench.setup.floors import three_writers
from bench.setup.native import BODY_SIZE, Window, plain_records, pour_for, rich_records
from bench.setup.peer import prototype_rates

WINDOWS = {64: Window(64), 1000: Window(8)}
"""Batches in flight, the same as the prototype's."""
WARM_SECONDS = 0.5
"""Before the first measurement of a cluster, ours and the prototype's."""
RICH_BATCHES = 64
"""So many in turn, each key once in them: an index of the same few keys would be no index."""


async def measure(effort: Effort) -> list[Figure]:
    """Measure in turn: ours, the prototype, the writers."""
    rounds = Rounds()
    for _ in range(effort.runs):
        await _ours(effort, rounds)
        for size, rate in prototype_rates(effort.folder, effort.seconds, WARM_SECONDS).items():
            rounds.add(f"prototype {size}", rate)
        rounds.add("writers", three_writers(effort.folder, effort.seconds) / BODY_SIZE)
    return list(_figures(rounds))


async def _ours(effort: Effort, rounds: Rounds) -> None:
    async with running(effort.folder) as here:
        topic = await here.create_topic("append", queues=4)
        await pour_for(here, topic, plain_records(64), WINDOWS[64], WARM_SECONDS)
        for size, window in WINDOWS.items():
            before = here.processor_seconds()
            poured = await pour_for(here, topic, plain_records(size), window, effort.seconds)
            rate = poured.rate
            used = here.processor_seconds() - before
            rounds.add(f"plain {size}", rate)
            rounds.add(f"cost {size}", used / (rate * effort.seconds * BODY_SIZE / 1e6) * 1000)
            rich = rich_records(RICH_BATCHES * size)
            poured = await pour_for(here, topic, rich, window, effort.seconds, size)
            rounds.add(f"rich {size}", poured.rate)


def _figures(rounds: Rounds) -> list[Figure]:
    figures: list[Figure] = []
    for size in WINDOWS:
        ours = rounds[f"plain {size}"]
        name = f"append_{size}"
        figures += [
            compared(
                f"{name}_to_prototype", ours, "records/s", "prototype",
                rounds[f"prototype {size}"], ">=", 0.9,
            ),
            compared(
                f"{name}_to_disk", ours, "records/s", "each of three plain writers",
                rounds["writers"], ">=", 0.4, note="aim: 0.6",
            ),
            compared(
                f"{name}_with_properties", rounds[f"rich {size}"], "records/s", "without",
                ours, ">=", 0.75, note="a tag, a key and two properties each",
            ),
            stated(f"{name}_members_cost", rounds[f"cost {size}"], "core-ms per MB"),
        ]  # fmt: skip
    return figures
