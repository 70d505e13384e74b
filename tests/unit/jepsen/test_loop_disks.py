"""Disks that are mounted by threads: who is broken off meanwhile leaves no mount behind."""

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

from jepsen_tests.backends.surface import Processes
from jepsen_tests.backends.troubles.loop_disk import LoopDisk, LoopDisks

LET_SECONDS = 0.05
"""For what must not happen to happen: longer waits would not make the test fail."""


class Slow:
    """As `LoopDisk`; mounting takes until it is allowed."""

    def __init__(self) -> None:
        self.begun, self.allowed = threading.Event(), threading.Event()
        self.said: list[str] = []

    def __enter__(self) -> None:
        self._mount()

    def __exit__(self, *_: object) -> None:
        self.detach()

    def power_on(self) -> None:
        self._mount()

    def _mount(self) -> None:
        self.begun.set()
        self.allowed.wait()
        self.said.append("mounted")

    def cut_power(self, flag: int) -> None:
        del flag
        self.begun.set()
        self.allowed.wait()
        self.said.append("cut")

    def detach(self) -> None:
        self.said.append("detached")


class OneMember:
    """As `Processes`, as far as disks need them."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    async def pause(self, node: str) -> None:
        self._said.append(f"{node} stands still")

    async def kill(self, node: str) -> None:
        self._said.append(f"{node} ended")


async def _broken_off(act: Any, disks: LoopDisks, disk: Slow, endings: int = 1) -> None:
    """Break an act off, and all endings but the last; the act then goes on."""
    doing = asyncio.ensure_future(act)
    await asyncio.to_thread(disk.begun.wait)
    doing.cancel()
    await asyncio.gather(doing, return_exceptions=True)
    for _ in range(endings - 1):
        ending = asyncio.ensure_future(disks.detach())
        await asyncio.wait({ending}, timeout=LET_SECONDS)
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
    ending = asyncio.ensure_future(disks.detach())
    await asyncio.wait({ending}, timeout=LET_SECONDS)
    disk.allowed.set()
    await ending


def _disks(folder: Path) -> tuple[LoopDisks, Slow, Slow]:
    first, second = Slow(), Slow()
    disks = LoopDisks(folder, ["n1", "n2"], cast("Processes", OneMember(first.said)))
    disks._disks = {"n1": cast("LoopDisk", first), "n2": cast("LoopDisk", second)}
    return disks, first, second


def test_a_start_broken_off_is_unmounted_after_it_mounted(tmp_path: Path) -> None:
    disks, first, second = _disks(tmp_path)
    asyncio.run(_broken_off(disks.attach(), disks, first))
    assert first.said == ["mounted", "detached"]
    assert second.said == ["detached"], "nothing new is begun"


def test_also_when_the_end_is_broken_off_itself(tmp_path: Path) -> None:
    disks, first, _ = _disks(tmp_path)
    asyncio.run(_broken_off(disks.attach(), disks, first, endings=3))
    assert first.said == ["mounted", "detached"]


def test_so_is_a_disk_whose_power_comes_back(tmp_path: Path) -> None:
    disks, first, _ = _disks(tmp_path)
    asyncio.run(_broken_off(disks.power_on("n1"), disks, first))
    assert first.said == ["n1 ended", "mounted", "detached"]


def test_a_power_cut_broken_off_is_undone_when_it_is_over_and_the_member_has_ended(
    tmp_path: Path,
) -> None:
    disks, first, _ = _disks(tmp_path)

    async def story() -> None:
        cutting = asyncio.ensure_future(disks.cut_power("n1"))
        await asyncio.to_thread(first.begun.wait)
        cutting.cancel()
        await asyncio.gather(cutting, return_exceptions=True)
        undoing = asyncio.ensure_future(disks.power_on("n1"))
        await asyncio.wait({undoing}, timeout=LET_SECONDS)
        first.allowed.set()
        await undoing

    asyncio.run(story())
    assert first.said == ["n1 stands still", "cut", "n1 ended", "mounted"]
