"""What users write: `submit` once per message, default batching. Beside it: batched append.

Also `send_many`, from as many tasks as the batched append has batches in flight; and what it costs
to hear of each message: `submit` with callbacks, `send` awaited by many tasks.
"""

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared
from bench.log.append import WARM_SECONDS, WINDOWS
from bench.setup.cluster import running
from bench.setup.native import plain_records, pour_for
from bench.setup.users import callbacks_for, send_for, send_many_for, submit_for
from dledger_client import AsyncProducer

TOPIC = "send"
SEND_TASKS = 1_000


async def measure(effort: Effort) -> list[Figure]:
    """Measure in turn: batched append on the bare wire, `submit`, `send_many`."""
    rounds = Rounds()
    async with running(effort.folder) as here:
        topic = await here.create_topic(TOPIC, queues=4)
        async with AsyncProducer(here.cluster.name_server) as producer:
            await submit_for(producer, TOPIC, WARM_SECONDS)
            for _ in range(effort.runs):
                for size, window in WINDOWS.items():
                    records = plain_records(size)
                    poured = await pour_for(here, topic, records, window, effort.seconds)
                    rounds.add(f"append {size}", poured.rate)
                    rate = await send_many_for(
                        producer, TOPIC, size, window.batches, effort.seconds
                    )
                    rounds.add(f"send_many {size}", rate)
                rounds.add("submit", await submit_for(producer, TOPIC, effort.seconds))
                rounds.add("callbacks", await callbacks_for(producer, TOPIC, effort.seconds))
                rate = await send_for(producer, TOPIC, SEND_TASKS, effort.seconds)
                rounds.add("send", rate)
    figures = [
        compared(
            f"send_to_append_{size}", rounds["submit"], "records/s",
            f"batched append of {size}", rounds[f"append {size}"], ">=", 0.5,
            note="one call of submit for each message",
        )
        for size in WINDOWS
    ]  # fmt: skip
    figures += [
        compared(name, rounds[key], "records/s", "submit", rounds["submit"], note=note)
        for key, name, note in (
            ("callbacks", "submit_with_callbacks", "a callback for each message"),
            ("send", "send_awaited", f"send awaited in {SEND_TASKS} tasks"),
        )
    ]
    figures += [
        compared(
            f"send_many_{size}", rounds[f"send_many {size}"], "records/s",
            f"batched append of {size}", rounds[f"append {size}"],
        )
        for size in WINDOWS
    ]  # fmt: skip
    return figures
