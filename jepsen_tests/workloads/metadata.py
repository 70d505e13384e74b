"""W6: topics as registers: does one exist, and how many read queues has it?

A topic's existence is 1 or 0: creating sets 1, deleting 0. Each topic belongs to the whole run. The
client may repeat every operation, so an operation of unknown outcome may still happen later.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar, Final

from dledger_client import AsyncAdmin, TopicNotFound
from jepsen_tests.backends.surface import Setting
from jepsen_tests.run.recorder import Process
from jepsen_tests.workloads.workload import LeastOk, Stage, Workload

CHANGED_TOPIC: Final = "chaos-changed"
READ_QUEUES_MAX: Final = 8
"""It has as many write queues; read queues are the register's value."""
READ_QUEUES: Final = f"read queues of {CHANGED_TOPIC}"
EXISTING_TOPICS: Final = tuple(f"chaos-exists-{number}" for number in range(4))
PAUSE_SECONDS: Final = 0.2


class MetadataWorkload(Workload):
    """Whoever asks for a topic sees what was decided last."""

    name = "metadata"
    what = "W6: create, delete, change and describe topics concurrently: linearizable registers"
    topics: ClassVar[Mapping[str, int]] = {CHANGED_TOPIC: READ_QUEUES_MAX}
    settings: ClassVar[Mapping[str, Setting]] = {"topics.auto_create": False}
    least_ok: ClassVar[LeastOk] = {"set": (50, 0.2), "get": (50, 0.3)}

    async def setup(self, stage: Stage) -> None:
        """Give every register a value that is known."""
        process = Process(stage.recorder)
        async with AsyncAdmin(stage.backend.bootstrap, stage.connection) as admin:
            await _change_to(process, admin, READ_QUEUES_MAX)
            await delete_all(process, admin)

    async def work(self, stage: Stage, random: Random) -> None:
        process = Process(stage.recorder)
        async with AsyncAdmin(stage.backend.bootstrap, stage.connection) as admin:
            while not stage.over.is_set():
                if random.random() < 0.5:
                    await _change(process, admin, random)
                else:
                    await change_existence(process, admin, random)
                await stage.pause(random, PAUSE_SECONDS)


async def _change(process: Process, admin: AsyncAdmin, random: Random) -> None:
    if random.random() < 0.5:
        await _change_to(process, admin, random.randint(1, READ_QUEUES_MAX))
        return

    async def read() -> int:
        return (await admin.describe_topic(CHANGED_TOPIC)).read_queues

    await process.do("get", READ_QUEUES, None, read, lambda found: found, reads=True)


async def _change_to(process: Process, admin: AsyncAdmin, value: int) -> None:
    await process.do(
        "set", READ_QUEUES, value,
        lambda: admin.update_topic(CHANGED_TOPIC, read_queues=value), lambda _: None,
    )  # fmt: skip


async def change_existence(process: Process, admin: AsyncAdmin, random: Random) -> None:
    """Create or delete a topic, or look whether it exists."""
    name = random.choice(EXISTING_TOPICS)
    await random.choice((_look, _create, _delete))(process, admin, name)


async def delete_all(process: Process, admin: AsyncAdmin) -> None:
    """Delete every topic whose existence is a register."""
    for name in EXISTING_TOPICS:
        await _delete(process, admin, name)


async def _look(process: Process, admin: AsyncAdmin, name: str) -> None:
    async def look() -> int:
        try:
            await admin.describe_topic(name)
        except TopicNotFound:
            return 0
        return 1

    await process.do("get", _existence(name), None, look, lambda found: found, reads=True)


async def _create(process: Process, admin: AsyncAdmin, name: str) -> None:
    await process.do(
        "set", _existence(name), 1, lambda: admin.create_topic(name), lambda _: None
    )  # fmt: skip


async def _delete(process: Process, admin: AsyncAdmin, name: str) -> None:
    async def delete() -> None:
        try:
            await admin.delete_topic(name)
        except TopicNotFound:  # it is not there, which is what was wanted
            return

    await process.do("set", _existence(name), 0, delete, lambda _: None)


def _existence(name: str) -> str:
    return f"existence of {name}"
