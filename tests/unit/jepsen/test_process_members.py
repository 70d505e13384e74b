"""Members as processes: what is done to their folders, and what is known of how they end."""

import asyncio
from pathlib import Path

import pytest

from jepsen_tests.backends.process import GROUP, Members
from jepsen_tests.backends.surface import CannotRepair


def members_of(folder: Path) -> Members:
    """Return members that do not run, of which n1 has a folder whose identity is damaged."""
    members = Members(folder, ["n1"], "", lambda _: [])
    damage(members)
    return members


def damage(members: Members) -> None:
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
