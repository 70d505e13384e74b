"""W14: consumer groups of each order. Consumers come and go, are killed, and fail by chance.

All groups consume the same topic. In the end consumers that never fail finish what is left. Then
the dead letters are sent again, by two at once, and these consumers finish them, too.
"""

import asyncio
import itertools
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from dledger_client import AsyncAdmin, ConsumeOrder, QueueProgress, StartFrom
from dledger_proto.errors import Code, DledgerError
from jepsen_tests.errors import HarnessFailure
from jepsen_tests.run.patience import Patience, Revive
from jepsen_tests.run.recorder import Process
from jepsen_tests.workloads.clients import place_of
from jepsen_tests.workloads.delivery.child import Child, Lanes, child
from jepsen_tests.workloads.delivery.consumer import ERRORS, ConsumerPlan
from jepsen_tests.workloads.workload import LeastOk, Stage, Workload

TOPIC: Final = "chaos-consume"
QUEUES: Final = 4
KEYS: Final = 12
"""Each is sent to one queue."""
GROUPS: Final = {f"chaos-{order.name.lower()}": order for order in ConsumeOrder}
RETRIES_MAX: Final = 2
RETRY_DELAYS_MS: Final = (100, 400)
SESSION_MS: Final = 3_000
LEASE_MS: Final = 3_000
FAILS: Final = 0.06
SENDERS: Final = 2
SEND_PAUSE_SECONDS: Final = 0.08
TOGETHER: Final = 0.2
"""Share of sends that store several messages at once."""
CONSUMERS: Final = 2
"""Of each group, most of the time."""
LIFE_SECONDS: Final = 12.0
"""Of a consumer, on average."""
KILLED: Final = 0.6
"""Share of consumers that are killed; the others leave in order."""
LOOK_PAUSE_SECONDS: Final = 0.3
CATCH_UP_SECONDS: Final = 60.0
"""A group that finishes nothing for so long is stuck."""
CATCH_UP_PAUSE_SECONDS: Final = 0.5
RESENDERS: Final = 2


class ConsumeWorkload(Workload):
    """Each group finishes with each message, in its order, whatever becomes of its consumers."""

    name = "consume"
    what = "W14: consumer groups of each order; consumers join, leave, fail and are killed"
    topics: ClassVar[Mapping[str, int]] = {TOPIC: QUEUES}
    least_ok: ClassVar[LeastOk] = {
        "send": (30, 0.2), "handle": (100, 0.5), "floors": (20, 0.2), "caught-up": (3, 0.5),
        "letters": (3, 0.5),
    }  # fmt: skip

    def __init__(self) -> None:
        self._names = itertools.count(1)
        self._lanes: Lanes | None = None

    async def setup(self, stage: Stage) -> None:
        self._lanes = Lanes(stage.recorder)
        async with AsyncAdmin(stage.backend.bootstrap, stage.connection) as admin:
            for group, order in GROUPS.items():
                try:
                    await admin.create_consumer_group(
                        group, order=order, retries_max=RETRIES_MAX, start=StartFrom.FIRST,
                        retry_delays_ms=RETRY_DELAYS_MS, session_ms=SESSION_MS,
                        lease_ms=LEASE_MS, pause_failures=0,
                    )  # fmt: skip
                except DledgerError as error:
                    raise HarnessFailure(f"consumer group {group}: {error}") from error

    def workers(self, stage: Stage) -> Sequence[Coroutine[Any, Any, None]]:
        randoms = (Random(stage.random.random()) for _ in itertools.count())
        return [
            *(self._send(stage, next(randoms)) for _ in range(SENDERS)),
            *(
                self._consume(stage, next(randoms), group)
                for group in GROUPS
                for _ in range(CONSUMERS)
            ),
            self._look(stage, next(randoms)),
        ]

    async def _send(self, stage: Stage, random: Random) -> None:
        async with aclosing(stage.worker(random)) as worker:
            while not stage.over.is_set():
                key = random.randrange(KEYS)
                count = random.randint(2, 4) if random.random() < TOGETHER else 1
                place = place_of(TOPIC, key % QUEUES)
                await worker.send(place, count, 60, order_key=f"key-{key}")
                await stage.pause(random, SEND_PAUSE_SECONDS)

    async def _consume(self, stage: Stage, random: Random, group: str) -> None:
        """Be one consumer after the other of a group."""
        while not stage.over.is_set():
            async with self._child(stage, random, group, FAILS) as consumer:
                seconds = random.expovariate(1 / LIFE_SECONDS)
                try:
                    async with asyncio.timeout(seconds):
                        await stage.over.wait()
                except TimeoutError:
                    pass
                if stage.over.is_set() or random.random() >= KILLED:
                    await consumer.leave()

    def _child(
        self, stage: Stage, random: Random, group: str, fails: float
    ) -> AbstractAsyncContextManager[Child]:
        assert self._lanes is not None, "the workload was set up"
        recorder = stage.recorder
        plan = ConsumerPlan(
            bootstrap=stage.backend.bootstrap,
            group=group,
            topic=TOPIC,
            order=GROUPS[group].name.lower(),
            retries_max=RETRIES_MAX,
            fails=fails,
            began=recorder.began,
            seed=random.random(),
            tls_folder=stage.backend.tls_folder,
        )
        name = f"{group}-{next(self._names)}"
        return child(recorder, self._lanes, name, plan, folder=stage.folder, mutant=stage.mutant)

    async def _look(self, stage: Stage, random: Random) -> None:
        """Ask one group after the other how far it is."""
        process = Process(stage.recorder)
        async with AsyncAdmin(stage.backend.bootstrap, stage.connection) as admin:
            while not stage.over.is_set():
                for group in GROUPS:
                    await _floors(process, admin, group)
                await stage.pause(random, LOOK_PAUSE_SECONDS)

    async def finish(self, stage: Stage, revive: Revive) -> None:
        """Let all groups finish, send their dead letters again, and let them finish again."""
        process, patience = Process(stage.recorder), Patience(revive)
        async with (
            AsyncAdmin(stage.backend.bootstrap, stage.connection) as admin,
            AsyncExitStack() as running,
        ):
            calm: list[Child] = [
                await running.enter_async_context(self._child(stage, stage.random, group, 0.0))
                for group in GROUPS
            ]
            for again in (True, False):
                await asyncio.gather(*(_caught_up(stage, admin, group) for group in GROUPS))
                for group in GROUPS:
                    await patience.until(partial(_letters, process, admin, group))
                if again:
                    await asyncio.gather(*(
                        _send_again(stage, admin, group)
                        for group in GROUPS for _ in range(RESENDERS)
                    ))  # fmt: skip
            await asyncio.gather(*(each.leave() for each in calm))


async def _progress(admin: AsyncAdmin, group: str) -> dict[str, QueueProgress]:
    """Return how far a group is in each queue of its topic, and of its retries."""
    return {
        place_of(topic, queue): each
        for topic in (TOPIC, f"%RETRY%{group}")
        for queue, each in (await admin.group_progress(group, topic)).items()
    }


async def _floors(process: Process, admin: AsyncAdmin, group: str) -> bool:
    done, _ = await process.do(
        "floors", group, None, lambda: _progress(admin, group),
        lambda found: {place: each.floor or 0 for place, each in found.items()}, reads=True,
    )  # fmt: skip
    return done


async def _letters(process: Process, admin: AsyncAdmin, group: str) -> bool:
    done, _ = await process.do(
        "letters", group, None, lambda: admin.dead_letters(group, limit=1_000_000),
        lambda found: [
            [place_of(each.topic, each.queue), each.offset, each.attempts, each.resent]
            for each in found
        ], reads=True,
    )  # fmt: skip
    return done


async def _send_again(stage: Stage, admin: AsyncAdmin, group: str) -> None:
    """Send all dead letters of a group again; others may do so at the same time.

    Those with one error come first. So there are gaps in what is settled, and no trim hides it.
    """
    process = Process(stage.recorder)
    for error in (f"dead {ERRORS - 1}", ""):
        again = partial(admin.resend_dead_letters, group, error=error, resent_max=1)
        done = False
        while not done:
            done, _ = await process.do(
                "letters-resent", group, None, again, lambda found: found.settled
            )
            if not done:
                await asyncio.sleep(CATCH_UP_PAUSE_SECONDS)


async def _caught_up(stage: Stage, admin: AsyncAdmin, group: str) -> None:
    """Wait until a group has finished with all that there is; note how far it came if it does not.

    The row begins when the group is there, or is stuck: a wait is no call that hangs.
    """
    loop = asyncio.get_running_loop()
    last, since = None, loop.time()
    waiting = "nobody could tell how far it is"
    found: dict[str, QueueProgress] = {}
    while loop.time() - since < CATCH_UP_SECONDS:
        try:
            found = await _progress(admin, group)
            timers = await admin.timers(f"%RETRY%{group}", limit=1)
        except DledgerError as error:
            waiting = str(error)
        else:
            late = [place for place, each in found.items() if (each.floor or 0) < each.maximum]
            if not late and not timers:
                waiting = ""
                break
            waiting = f"it has not finished in {', '.join(late) or 'what waits to be retried'}"
            if (now := {place: each.floor for place, each in found.items()}) != last:
                last, since = now, loop.time()
        await asyncio.sleep(CATCH_UP_PAUSE_SECONDS)

    async def ends() -> dict[str, int]:
        if waiting:
            raise DledgerError(Code.UNAVAILABLE, f"{group}: {waiting}")
        mine = (place for place in found if place.startswith(TOPIC))
        return {place: found[place].maximum for place in mine}

    await Process(stage.recorder).do("caught-up", group, None, ends, dict, reads=True)
