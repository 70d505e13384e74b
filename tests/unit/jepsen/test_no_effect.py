"""Faults that come to nothing: written down as not done, and bounded in time."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any, ClassVar, cast

import pytest

from dledger_client import AsyncAdmin
from dledger_proto.errors import Code, DledgerError
from jepsen_tests.backends.surface import Backend, CannotLimit
from jepsen_tests.backends.troubles import cgroup
from jepsen_tests.backends.troubles.cgroup import MemberCgroups
from jepsen_tests.history.events import SKIPPED
from jepsen_tests.nemeses import FAULTS, surroundings
from jepsen_tests.nemeses.fault import NoEffect, Scene, Undoing
from jepsen_tests.nemeses.nemesis import Nemesis
from tests.unit.jepsen.test_nemesis import written

REFUSED = DledgerError(Code.NOT_LEADER, "not handed over: n2 is too far behind")
UNKNOWN = DledgerError(Code.UNKNOWN_OUTCOME, "no new leader was heard of")


class Hosts:
    """A cluster and its admin: each transfer ends as it is told, or hangs for None."""

    name, group, nodes = "none", "g", ("n1", "n2")
    missing: ClassVar[dict[str, str]] = {}

    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers
        self.processes = self.cgroups = self
        self.asked = 0
        self.undone = False

    async def transfer_leadership(self, group: str, target: str) -> tuple[str, int]:
        del group
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, DledgerError):
            raise answer
        return target, 2

    def is_running(self, node: str) -> bool:
        return bool(node)

    async def starve(self, node: str, cpu_percent: int, memory_bytes: int) -> None:
        del memory_bytes
        if cpu_percent:
            raise CannotLimit(f"{node} does not run")
        self.undone = True


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "TRANSFER_SECONDS_MAX", 0.0)


def scene_of(hosts: Hosts, undo: Undoing) -> Scene:
    return Scene(cast("Backend", hosts), cast("AsyncAdmin", hosts), NeverTheLeader(1), undo)


class NeverTheLeader(Random):
    """So that nobody asks who leads."""

    def random(self) -> float:
        return 0.9


@pytest.mark.parametrize(
    ("answers", "targets"),
    [([REFUSED, UNKNOWN, REFUSED], 1), ([REFUSED, "done", REFUSED], 1), ([REFUSED, None], 1)],
)
def test_a_transfer_that_may_have_been_made_is_in_force(answers: list[Any], targets: int) -> None:
    hit = asyncio.run(surroundings.transfers(scene_of(Hosts(answers), Undoing())))
    assert len(hit.split(",")) == targets


def test_one_that_hangs_is_not_waited_for_and_is_the_last() -> None:
    hosts = Hosts([None])
    assert asyncio.run(surroundings.transfers(scene_of(hosts, Undoing()))) in hosts.nodes
    assert hosts.asked == 1


def test_when_nobody_could_take_over_it_is_without_effect() -> None:
    with pytest.raises(NoEffect, match="without effect: no other member could take over"):
        asyncio.run(surroundings.transfers(scene_of(Hosts([REFUSED]), Undoing())))


def test_what_had_no_effect_is_not_in_force_although_it_is_undone(tmp_path: Path) -> None:
    hosts = Hosts([])

    async def script(_members: object, nemesis: Nemesis) -> None:
        async with Undoing() as undo:
            assert not await nemesis._begin(FAULTS["starve"], scene_of(hosts, undo))
        assert nemesis.skipped["starve"].startswith("without effect: ")

    ((_, _, begun), (_, _, ended)) = written(tmp_path, script)
    assert not begun
    assert ended.startswith(f"{SKIPPED}without effect: n")
    assert hosts.undone


def test_who_has_ended_cannot_be_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "_is_v2", lambda: True)

    def gone(_self: Path, _text: str) -> None:
        raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr(Path, "write_text", gone)
    for pid in (None, 1 << 22):
        groups = MemberCgroups(["n1"], {"n1": pid}.get)
        with pytest.raises(CannotLimit, match="n1"):
            asyncio.run(groups.starve("n1", 5, 1 << 20))
        asyncio.run(groups.starve("n1", 0, 0))
