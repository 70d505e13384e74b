"""LocalMembers as processes: what is done to their folders, and what is known of how they end."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from jepsen_tests.backends.process import GROUP, LocalMembers
from jepsen_tests.backends.surface import CannotRepair
from tests.waiting import wait_until

WAITS = "import signal; signal.pause()"


def members_of(folder: Path) -> LocalMembers:
    """Return members that do not run, of which n1 has a folder whose identity is damaged."""
    members = LocalMembers(folder, {"n1": GROUP}, "", lambda _: [])
    damage(members)
    return members


def damage(members: LocalMembers) -> None:
    folder = members.folder("n1")
    (folder / "log").mkdir(parents=True)
    (folder / "identity").write_bytes(b"?")


def test_of_folders_that_were_set_aside_the_newest_stays(tmp_path: Path) -> None:
    members = members_of(tmp_path)
    for number in range(4):
        assert not asyncio.run(members.is_sound("n1"))
        (members.folder("n1") / "number").write_text(str(number))
        asyncio.run(members.repair("n1"))
        (kept,) = (tmp_path / "n1" / "data").iterdir()
        assert kept.name.startswith(f"{GROUP}.damaged-")
        assert (kept / "number").read_text() == str(number)
        damage(members)


def test_what_cannot_be_repaired_costs_no_evidence(tmp_path: Path) -> None:
    members = members_of(tmp_path)
    asyncio.run(members.repair("n1"))
    before = list((tmp_path / "n1" / "data").iterdir())
    with pytest.raises(CannotRepair):
        asyncio.run(members.repair("n1"))
    assert list((tmp_path / "n1" / "data").iterdir()) == before


def spawn(members: LocalMembers, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Start n1 as a process that does this instead of what a member does."""
    monkeypatch.setattr(members, "_within", lambda _: [sys.executable, "-c", code])
    members.spawn("n1", [])


def test_who_ends_by_itself_died_each_life_once_also_when_it_was_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = LocalMembers(tmp_path, {"n1": GROUP, "n2": GROUP}, "", lambda _: [])
    assert members.died() == {}
    for code in (74, 65):
        spawn(members, monkeypatch, f"raise SystemExit({code})")
        wait_until(lambda: not members.is_running("n1"), "it has ended")
    spawn(members, monkeypatch, WAITS)
    assert members.died() == {"n1": ["exit 74, life 1", "exit 65, life 2"]}
    assert members.died() == {}
    asyncio.run(members.kill_all())


@pytest.mark.parametrize("end", [LocalMembers.kill, LocalMembers.stop])
def test_whom_we_end_did_not_die_unless_it_was_quicker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[..., Awaitable[None]]
) -> None:
    members = LocalMembers(tmp_path, {"n1": GROUP}, "", lambda _: [])

    async def ended() -> None:
        await end(members, "n1")

    spawn(members, monkeypatch, WAITS)
    asyncio.run(ended())
    assert members.died() == {}
    spawn(members, monkeypatch, "raise SystemExit(74)")
    wait_until(lambda: not members.is_running("n1"), "it has ended")
    asyncio.run(ended())
    assert members.died() == {"n1": ["exit 74, life 2"]}


def test_one_that_ends_as_it_is_killed_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = LocalMembers(tmp_path, {"n1": GROUP}, "", lambda _: [])
    go = tmp_path / "go"
    os.mkfifo(go)
    spawn(members, monkeypatch, f"open({str(go)!r}).read(); raise SystemExit(74)")
    process = members._started["n1"]

    def late() -> None:
        go.write_text("")
        process.wait()

    monkeypatch.setattr(process, "kill", late)
    asyncio.run(members.kill("n1"))
    assert members.died() == {"n1": ["exit 74, life 1"]}
