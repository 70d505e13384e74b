"""Rounds of all systems in turn, and what was left out and why.

Owns the order of figures in a round, and that a system which fails does not end the comparison.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.peers.figures import (
    END_TO_END_RATE,
    LOADED_SHARE,
    ROWS,
    Results,
    Work,
    by_our_clients,
    gaps,
    milliseconds,
)
from bench.peers.peer import Load, Peer
from bench.setup.cluster import NotReady

Tell = Callable[[str], None]
Found = dict[str, float]
Keep = Callable[[str, str, float], None]
"""Called with system, key and value of each figure as soon as it is there."""
SMALL_BYTES = 100
LARGE_BYTES = 64 << 10
TOPICS = 100
TITLES = {row.key: row.title for row in ROWS}


def failures(peer: Peer) -> tuple[type[Exception], ...]:
    """Return what a measurement of a system may raise without being our mistake."""
    return (NotReady, OSError, *peer.errors)


def available(peers: Sequence[Peer], results: Results, tell: Tell) -> list[Peer]:
    """Install what can be had; return the systems that are there. Says loudly what is not."""
    there: list[Peer] = []
    for peer in peers:
        lost = peer.missing()
        if not lost:
            tell(f"{peer.name}: installing what is not there yet")
            try:
                peer.install()
                results.versions[peer.name] = peer.version()
            except (NotReady, OSError) as error:
                lost = f"it could not be installed: {error}"
        if lost:
            _leave_out(results, tell, f"{peer.name} is left out: {lost}")
        else:
            there.append(peer)
    return there


@dataclass(slots=True)
class Rounds:
    """The comparison while it runs."""

    results: Results
    work: Work
    folder: Path
    """On the disk to measure; the end removes what is in it."""
    failed: Path
    """Where the output of nodes goes when a measurement fails."""
    tell: Tell
    keep: Keep

    async def run(self, peers: Sequence[Peer], rounds: int) -> None:
        """Measure all systems in turn, so many times."""
        for number in range(1, rounds + 1):
            for peer in peers:
                self.tell(f"round {number} of {rounds}: {peer.name}")
                try:
                    async with self._started(peer):
                        await self._figures(peer)
                except failures(peer) as error:
                    self._fail(peer, "a round", error)

    @asynccontextmanager
    async def _started(self, peer: Peer) -> AsyncGenerator[None]:
        """Start a new cluster; end it and remove its data afterwards."""
        folder = self._of(peer)
        folder.mkdir(parents=True)
        try:
            await peer.start(folder)
            yield
        except BaseException:
            self._keep_logs(peer)
            raise
        finally:
            await peer.stop()
            shutil.rmtree(folder, ignore_errors=True)

    async def _figures(self, peer: Peer) -> None:
        work, plain = self.work, Load(self.work.seconds)
        loads = {
            "four_queues": replace(plain, queues=4),
            "small": replace(plain, size_bytes=SMALL_BYTES),
            "large": replace(plain, size_bytes=LARGE_BYTES),
            "topics": replace(plain, topics=TOPICS),
        }

        async def backlog() -> Found:
            return {"backlog": await peer.backlog(work.backlog_messages)}

        async def lone() -> Found:
            return by_our_clients("lone", await peer.lone_send(work.lone_seconds))

        async def end_to_end() -> Found:
            ages = await peer.end_to_end(END_TO_END_RATE, work.end_to_end_seconds)
            return milliseconds("end_to_end", ages, p50=0.5, p99=0.99)

        async def failover() -> Found:
            return gaps(await peer.failover(work.trials))

        # A JVM compiles what runs often. Batches alone warm up little: they are few calls.
        await peer.one_call_per_message(Load(work.warm_seconds))
        await peer.lone_send(work.warm_seconds)
        # Latencies first: later ones would pay for what the loads before them left behind.
        await self._one(peer, "the lone send", lone)
        await self._one(peer, "end to end", end_to_end)
        peak = await self._rate(peer, "one_queue", plain)

        async def loaded() -> Found:
            load = replace(plain, rate=peak * LOADED_SHARE)
            sent = await peer.one_call_per_message(load)
            return milliseconds("loaded", sent.seconds, p50=0.5, p99=0.99, p999=0.999)

        if peak:
            await self._one(peer, "latency under load", loaded)
        for key, load in loads.items():
            await self._rate(peer, key, load)
        await self._one(peer, "the backlog", backlog)
        await self._one(peer, "failover", failover)

    async def _rate(self, peer: Peer, key: str, load: Load) -> float:
        """Measure a rate; return it, 0 when there is none."""
        lost = peer.lacks(load)
        if lost:
            self.results.leave_out(f"{peer.name}, {TITLES[key]}: {lost}", by_nature=True)
            return 0.0
        rates: list[float] = []

        async def measure() -> Found:
            rates.append((await peer.one_call_per_message(load)).rate)
            return {key: rates[0]}

        await self._one(peer, TITLES[key], measure)
        return rates[0] if rates else 0.0

    async def _one(self, peer: Peer, what: str, measure: Callable[[], Awaitable[Found]]) -> None:
        """Measure and keep; a figure that fails is left out, the next may still work."""
        await asyncio.to_thread(os.sync)  # what the figure before it left unwritten
        try:
            found = await measure()
        except failures(peer) as error:
            self._fail(peer, what, error)
            return
        for key, value in found.items():
            self.results.add(peer.name, key, value)
            self.keep(peer.name, key, value)

    def _fail(self, peer: Peer, what: str, error: Exception) -> None:
        self._keep_logs(peer)
        said = " ".join(f"{type(error).__name__}: {error}".split())
        _leave_out(self.results, self.tell, f"{peer.name}, {what}: {said}")

    def _keep_logs(self, peer: Peer) -> None:
        kept = self.failed / self._of(peer).name
        kept.mkdir(parents=True, exist_ok=True)
        for pattern in ("*.log", "*/*.log"):
            for log in self._of(peer).glob(pattern):
                shutil.copy(log, kept)

    def _of(self, peer: Peer) -> Path:
        return self.folder / "".join(each if each.isalnum() else "-" for each in peer.name)


def _leave_out(results: Results, tell: Tell, what: str) -> None:
    results.leave_out(what)
    tell(f"LEFT OUT: {what}")
