"""One group's parts, closed in order: also when the disk does not answer."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from dledger.clock import SystemClock
from dledger.files import OsFileSystem
from dledger.log.errors import FolderInUse
from dledger.log.folder import DataFolder
from dledger.raft.transport import PeerListener
from dledger.trace import ListTrace
from dledger.types import MemberId
from dledger_broker.config_load import load_config
from dledger_broker.forward import Channels
from dledger_broker.group_runtime import GroupRuntime

CONFIG = """
cluster = "c"
member = "a"
listen = "127.0.0.1:1"
folder = "data"

[storage]
disk_reserve_bytes = 1048576
disk_low_water_bytes = 1048576

[group]
name = "g"
members = { a = "127.0.0.1:1" }
"""


async def opened(folder: Path) -> GroupRuntime:
    path = folder / "member.toml"
    path.write_text(CONFIG)
    config = load_config(path, {}).config
    runtime = GroupRuntime(
        config, config.groups[0], SystemClock(), Random(1), ThreadPoolExecutor(1), Channels()
    )
    runtime.open(lambda _error: None)
    runtime.start(PeerListener("c", ListTrace()))
    return runtime


def reopen(folder: Path) -> DataFolder:
    fs, path = OsFileSystem(), str(folder / "data" / "g")
    return DataFolder.open(fs, path, "c", "g", MemberId("a"), Random(2))


def test_a_group_that_ended_gives_its_folder_free(tmp_path: Path) -> None:
    async def run() -> None:
        runtime = await opened(tmp_path)
        await runtime.stop(10.0)
        reopen(tmp_path).close()

    asyncio.run(run())


def test_a_folder_stays_locked_while_a_thread_may_still_write(tmp_path: Path) -> None:
    """Whoever opened it next would write beside a round that comes back from a hanging disk."""

    async def run() -> None:
        runtime = await opened(tmp_path)
        hangs = asyncio.Event()

        async def stop() -> None:
            await hangs.wait()

        host = runtime.served.host
        whole_stop, host.stop = host.stop, stop  # type: ignore[method-assign]
        await runtime.stop(0.01)
        with pytest.raises(FolderInUse):
            reopen(tmp_path)
        await whole_stop()

    asyncio.run(run())
