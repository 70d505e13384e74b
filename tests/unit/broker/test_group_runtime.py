"""One group's parts, closed in order: also when the disk does not answer."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from dledger.files import OsFileSystem
from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedFile, FolderInUse
from dledger.log.folder import DataFolder
from dledger.log.settings import LogSettings
from dledger.raft.api import Role
from dledger.raft.links.peer_listener import PeerListener
from dledger.types import DiskRoom, EntryKind, LogIndex, MemberId, Term
from dledger_broker.cluster.channels import Channels
from dledger_broker.config.load import load_config
from dledger_broker.process import upkeep
from dledger_broker.process.group_runtime import GroupRuntime
from dledger_broker.process.member import exit_code_of
from dledger_broker.process.platform import of_this_machine
from dledger_broker.refill.giving import Giving
from dledger_proto.entry import encode_genesis
from tests.list_trace import ListTrace
from tests.waiting import until


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "UPKEEP_SECONDS", 0.01)


CONFIG = """
cluster = "c"
member = "a"
listen = "127.0.0.1:1"
folder = "data"

[storage]
disk_reserve_bytes = 16777216
disk_low_water_bytes = 16777216

[raft]
uncommitted_bytes_max = 16777216

[group]
name = "g"
members = { a = "127.0.0.1:1" }
"""


async def opened(
    folder: Path, on_failure: Callable[[BaseException], None] = lambda _error: None
) -> GroupRuntime:
    path = folder / "member.toml"
    path.write_text(CONFIG)
    config = load_config(path, {}).config
    runtime = GroupRuntime(config, config.groups[0], of_this_machine(), Channels())
    runtime.open(on_failure)
    listener = PeerListener("c", ListTrace())
    runtime.start(listener, Giving(listener.greet, Random(1)), lambda: None)
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

        host = runtime.view.host
        whole_stop, host.stop = host.stop, stop  # type: ignore[method-assign]
        await runtime.stop(0.01)
        with pytest.raises(FolderInUse):
            reopen(tmp_path)
        await whole_stop()

    asyncio.run(run())


def test_a_disk_that_fails_when_it_is_looked_at_ends_the_group(tmp_path: Path) -> None:
    """The reserve can't be kept, and the member must not go on as if it were (I16)."""

    async def run() -> None:
        failed: list[BaseException] = []
        runtime = await opened(tmp_path, failed.append)
        host, space = runtime.view.host, runtime._log.space
        await until(lambda: host.leadership.role is Role.LEADER, "a group of one leads")
        await host.save_state()  # nothing is written from here on

        def check() -> DiskRoom:
            raise OSError(errno.EIO, "simulated")

        space.check = check  # type: ignore[method-assign]
        await until(lambda: bool(failed), "the group fails")
        assert isinstance(failed[0], OSError)
        await runtime.stop(10.0)

    asyncio.run(run())


def write_log(folder: Path, *, trimmed: bool) -> LogIndex:
    """Write a log of several segments, with no state beside it; return its first index."""
    data = reopen(folder)
    settings = LogSettings(segment_size=4096, reserve_bytes=0, low_water_bytes=0)
    log = CommitLog(OsFileSystem(), data, settings, Random(3))
    group_id = bytes(range(16))
    genesis = encode_genesis("c", "g", group_id, [("a", data.identity.incarnation)])
    log.write_genesis(genesis, group_id)
    for _ in range(20):
        log.append_new(EntryKind.NO_OP, [bytes(700)], Term(0), 0)
    for _ in range(2):
        if trimmed and log.durable_index:
            assert log.trim_head(log.last_position, log.last_index)
        taken = log.take_round(None)
        if taken is not None:
            taken.execute()
            log.round_finished(taken)
    log.close()
    data.close()
    return log.first_index


def test_a_state_that_is_gone_is_refused_when_the_log_cannot_rebuild_it(tmp_path: Path) -> None:
    first = write_log(tmp_path, trimmed=True)
    assert first > 1
    with pytest.raises(DamagedFile) as caught:
        asyncio.run(opened(tmp_path))
    said = str(caught.value)
    assert str(tmp_path / "data" / "g" / "state") in said
    assert "needs entry 1 next" in said
    assert f"the first entry that the log still has is {first}" in said
    assert "dledger repair" in said
    assert exit_code_of(caught.value) == 65


def test_a_state_that_is_gone_is_rebuilt_from_a_whole_log(tmp_path: Path) -> None:
    assert write_log(tmp_path, trimmed=False) == 1

    async def run() -> None:
        runtime = await opened(tmp_path)
        await runtime.stop(10.0)

    asyncio.run(run())
