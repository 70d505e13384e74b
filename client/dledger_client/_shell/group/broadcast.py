"""A consumer that gets everything: all queues, offsets in a local file (S86, S112).

Owns: which queues there are, the file, what a failure means: nothing, the record is done. No group
takes part: whoever broadcasts needs neither session nor claims.

The file is JSON: `{"group": ..., "offsets": {"topic id in hex/queue": offset}}`. A new one is
written beside the old one, and then takes its place. So there is never half a file. The start makes
its folder, and fails when the file cannot be written there. Later only the log tells that: the next
write may succeed, and until then the file holds what was done before.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from dledger_client._core.consumer.state import Place
from dledger_client._core.group.actions import Failed, Why
from dledger_client._core.group.failures import Failure
from dledger_client._core.group.progress import Progress
from dledger_client._core.group.queues import HeldQueue, QueueState
from dledger_client._core.routes import RouteChange, TopicRoute
from dledger_client._shell.cluster import Cluster
from dledger_client._shell.group.membership import QueueUser
from dledger_client._shell.queries import Queries
from dledger_client.config import ConsumerConfig, StartAt
from dledger_client.errors import ClientError, client_error, invalid
from dledger_proto.errors import DledgerError
from dledger_proto.names import holds_references
from dledger_proto.patterns import Pattern
from dledger_proto.v1 import delivery_pb2

_LOG = logging.getLogger("dledger_client")
_NO_OFFSETS: Final = (
    ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
"""Errors for JSON that holds something else."""


class Broadcast:
    """All queues of the topics, for this consumer alone."""

    def __init__(
        self,
        cluster: Cluster,
        queries: Queries,
        config: ConsumerConfig,
        subscriptions: Sequence[delivery_pb2.Subscription],
        user: QueueUser,
        offsets_file: str,
    ) -> None:
        self._cluster = cluster
        self._queries = queries
        self._config = config
        self._names = frozenset(each.topic for each in subscriptions if not each.pattern)
        self._patterns = [pattern_of(each.topic) for each in subscriptions if each.pattern]
        self._user = user
        self._path = Path(offsets_file) if offsets_file else None
        self._stored: dict[str, int] = {}
        self._held: dict[Place, HeldQueue] = {}
        self._let_go: set[HeldQueue] = set()
        self._saver: asyncio.Task[None] | None = None
        self._adders: set[asyncio.Task[None]] = set()
        self._left = asyncio.Event()

    async def start(self) -> None:
        """Read the file, and all queues from where it says."""
        if self._path is not None:
            self._stored = await asyncio.to_thread(_load, self._path, self._config.group)
        # Of a topic that is there already patterns begin where `start_at` says.
        await self._cluster.wait_loaded(self._config.connection.call_timeout_ms / 1_000)
        for name in sorted(self._names):
            await self._queries.topic(name)
        await self._add([route.name for route in self._topics()], is_first=True)
        self._cluster.listen(self._routes_changed)
        self._saver = asyncio.get_running_loop().create_task(self._save_often())

    def _topics(self) -> list[TopicRoute]:
        return [route for route in self._cluster.routes.topics() if self._wants(route.name)]

    def _wants(self, topic: str) -> bool:
        """Return whether a topic is meant: patterns mean none of consumer groups."""
        if topic in self._names:
            return True
        return not holds_references(topic) and any(
            pattern.matches(topic) for pattern in self._patterns
        )

    def _routes_changed(self, change: RouteChange) -> None:
        changed = [route.name for route in self._topics() if route.name in change.topics]
        if changed:
            adder = asyncio.get_running_loop().create_task(self._add(changed, is_first=False))
            self._adders.add(adder)
            adder.add_done_callback(self._adders.discard)

    async def _add(self, topics: Sequence[str], *, is_first: bool) -> None:
        """Read queues that are not read yet; what is added later is read from its beginning."""
        for topic in topics:
            try:
                places = await self._queries.places(topic)
                bounds = await self._queries.bounds(places)
            except ClientError as error:
                if is_first:
                    raise
                _LOG.warning("topic %s: its new queues cannot be read yet: %s", topic, error)
                continue
            for place in places:
                route, group = await self._queries.located(place)
                if place in self._held or self._left.is_set():
                    continue
                held = HeldQueue(place, route.id, group, 0, QueueState.SERVING)
                is_last = is_first and self._config.start_at is StartAt.LAST
                start = bounds[place].maximum if is_last else bounds[place].minimum
                offset = self._stored.get(_name(held), start)
                held.progress = Progress(max(offset, bounds[place].minimum))
                self._held[place] = held
                self._user.start_queue(held)

    def fail(self, failure: Failure) -> None:
        """Take a record that failed for done: a broadcast delivers nothing again."""
        held = failure.held
        held.progress.done(failure.offset)
        told = Failed(held, failure.offset, failure.attempts + 1, is_done=True, again_at=0.0)
        self._user.failure_stored(told)

    def let_go(self, held: HeldQueue) -> None:
        """Take in that nothing of a queue is in hand any more."""
        self._let_go.add(held)
        if len(self._let_go) == len(self._held):
            self._left.set()

    async def leave(self, seconds: float) -> None:
        """Stop all queues, wait until nothing is in hand, write the file."""
        for held in self._held.values():
            held.state = QueueState.LEAVING
            self._user.stop_queue(held, Why.REVOKED)
        if self._held:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._left.wait()
        self._left.set()
        if self._saver is not None:
            self._saver.cancel()
            await asyncio.gather(self._saver, return_exceptions=True)
        await self._save()

    async def _save_often(self) -> None:
        while True:
            await asyncio.sleep(self._config.commit_interval_ms / 1_000)
            await self._save()

    async def _save(self) -> None:
        offsets = self._stored | {_name(held): held.progress.floor for held in self._held.values()}
        if self._path is not None and offsets != self._stored:
            try:
                await asyncio.to_thread(_store, self._path, self._config.group, offsets)
            except OSError as error:
                _LOG.error("offsets_file: %s cannot be written: %s", self._path, error)
            else:
                self._stored = offsets


def _name(held: HeldQueue) -> str:
    return f"{held.topic_id.hex()}/{held.place[1]}"


def pattern_of(text: str) -> Pattern:
    """Return a pattern as the coordinators of groups compile it; InvalidRequest."""
    try:
        return Pattern(text)
    except DledgerError as error:
        raise client_error(error) from None


def _load(path: Path, group: str) -> dict[str, int]:
    """Return the offsets of a file, none when it is not there; InvalidRequest.

    Also when it cannot be written: so much is sure before the first record is handed out.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        offsets = _offsets_of(path)
        _store(path, group, offsets)
    except OSError as error:
        raise invalid(f"offsets_file: {path}: {error.strerror or error}") from error
    return offsets


def _offsets_of(path: Path) -> dict[str, int]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise invalid(f"offsets_file: {path} holds no offsets ({error})") from error
    try:
        offsets = json.loads(text)["offsets"]
        return {str(name): int(offset) for name, offset in offsets.items()}
    except _NO_OFFSETS as error:
        raise invalid(f"offsets_file: {path} holds no offsets ({error})") from error


def _store(path: Path, group: str, offsets: dict[str, int]) -> None:
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(cast("object", {"group": group, "offsets": offsets})))
    beside.replace(path)
