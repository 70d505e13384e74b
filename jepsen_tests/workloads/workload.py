"""What a workload is: the queues it uses, its workers, and how much must succeed to prove anything.

Owns the interface and the pace. The phases around it (setup, faults, heal, final reads) are the
same for all workloads: `run/phases.py`.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

from dledger_client import ConnectionConfig
from jepsen_tests.backends.surface import Backend, Setting, places_of
from jepsen_tests.run.patience import Revive
from jepsen_tests.run.recorder import Recorder
from jepsen_tests.workloads.clients import CONNECTION, Worker, place_of

LeastOk = Mapping[str, tuple[int, float]]
"""By function: how many must succeed, and which share of all that ended."""
PAUSE_MEAN_SECONDS: Final = 0.05
TOPIC_PREFIX: Final = "chaos-"
"""Of all topics that a workload makes, so that they are known in a cluster with others."""


@dataclass(slots=True)
class Stage:
    """What a workload acts on."""

    backend: Backend
    recorder: Recorder
    random: Random
    concurrency: int
    folder: Path
    """Of the run, for files of the clients."""
    topics: Mapping[str, int] = field(default_factory=dict[str, int])
    """Those of the workload, with their numbers of queues in each broker group."""
    mutant: str = ""
    """A known bug that processes of clients get, too."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when workers should end after their present operation."""

    @property
    def addresses(self) -> list[str]:
        """Return where clients reach each member."""
        return [self.backend.address(node) for node in self.backend.nodes]

    @property
    def connection(self) -> ConnectionConfig:
        """Return how the public clients reach the cluster."""
        return replace(CONNECTION, tls_folder=self.backend.tls_folder)

    def by_group(self, places: Iterable[str]) -> Iterator[tuple[Backend, list[str]]]:
        """Yield each broker group with those of these places that it has."""
        if not self.backend.parts:
            yield self.backend, list(places)
            return
        known, wanted = places_of(self.backend, self.topics), set(places)
        for part in self.backend.parts:
            mine = (place_of(*queue) for queue in known[part.group])
            yield part, [place for place in mine if place in wanted]

    def worker(self, random: Random, *, name: str = "") -> Worker:
        """Return a new worker; `name` is as for `Worker`."""
        return Worker(self.recorder, self.backend.bootstrap, random, self.connection, name=name)

    async def pause(self, random: Random, mean: float = PAUSE_MEAN_SECONDS) -> None:
        """Wait a little, as callers do."""
        await asyncio.sleep(random.expovariate(1 / mean))


class Workload:
    """Operations on a cluster, by several workers at once."""

    name: ClassVar[str]
    what: ClassVar[str]
    """One line for `list`."""
    topics: ClassVar[Mapping[str, int]]
    """The topics that it sends to, with their numbers of queues in each broker group."""
    broker_groups: ClassVar[int] = 1
    settings: ClassVar[Mapping[str, Setting]] = {}
    """Members' configuration that it wants."""
    least_ok: ClassVar[LeastOk]
    trims: ClassVar[bool] = False
    """It drops the log's head: a member that lost its data could not be filled again."""

    def workers(self, stage: Stage) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the workers, which run until `stage.over`: as many alike as the run wants."""
        randoms = [Random(stage.random.random()) for _ in range(stage.concurrency)]
        return [self.work(stage, random) for random in randoms]

    async def work(self, stage: Stage, random: Random) -> None:
        """Be one worker. A workload with workers of several kinds overrides `workers` instead."""
        raise NotImplementedError(self.name)

    async def setup(self, stage: Stage) -> None:
        """Prepare what the workers need; topics exist already."""
        del stage

    async def finish(self, stage: Stage, revive: Revive) -> None:
        """Ask what can be asked only at the end; everything is healed. `revive`: as `Patience`."""
        del stage, revive
