"""`dledger top`: members, rates of topics, lag of consumer groups, again and again.

It asks what the other commands ask (status, offsets, progress), and no HTTP port. Owns: how much is
asked at each look. Not: rates (`top_rows.py`), the rows of members and of lag (`cluster/`).
"""

import time
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType

from dledger_broker.cli.cluster.group_progress import consumed, lag_of
from dledger_broker.cli.cluster.status import look
from dledger_broker.cli.cluster.topics import all_topics, queue_bounds
from dledger_broker.cli.connect import DEFAULT_NAME_SERVERS, Cluster, NameServers, Timeout
from dledger_broker.cli.live.refresh import refreshed
from dledger_broker.cli.live.top_rows import Look, Row, lag_rows, topic_rows
from dledger_broker.cli.output import CommandFailed, JsonFlag, answering
from dledger_broker.cli.tables import Rows
from dledger_proto.errors import DledgerError
from dledger_proto.names import GROUP_TOPIC_PREFIXES, RETRY_TOPIC_PREFIX
from dledger_proto.v1.broker_pb2 import ListTopicsRequest, Topic

MEMBERS: Final = ("group", "member", "role", "term", "commit", "applied", "lag", "reason")
TOPICS: Final = ("topic", "queues", "messages", "in_per_second")
LAGS: Final = ("consumer_group", "topic", "lag", "lag_seconds", "done_per_second", "lost")
CONSUMED_SECONDS: Final = 10.0
"""So long it is remembered which topics a consumer group has: asking costs more than the lag."""


def top(
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between refreshes.")] = 2.0,
    topics: Annotated[int, typer.Option(min=0, max=1_000, help="Topics that are asked for.")] = 50,
    groups: Annotated[
        int, typer.Option(min=0, max=1_000, help="Consumer groups that are asked for.")
    ] = 20,
    count: Annotated[int, typer.Option(min=0, help="End after so many; 0: at Ctrl-C.")] = 0,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
) -> None:
    """Show members, the rates of topics and the lag of consumer groups, again and again.

    in per second: messages that the topic took. done per second: messages that the consumer group
    finished. lag seconds: since when the first message waits. Rates need two looks. Topics and
    consumer groups beyond --topics and --groups, by name, are not asked for.
    """
    with Cluster(name_servers, timeout) as cluster:
        watch = _Watch(cluster, topics, groups, name_servers, timeout)
        with answering():
            refreshed(watch.rows, _tables, every, as_json=as_json, count=count)


class _Watch:
    """Looks at a cluster, and remembers the look before."""

    def __init__(
        self, cluster: Cluster, topics: int, groups: int, name_servers: str, timeout: float
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._groups = groups
        self._name_servers = name_servers
        self._timeout = timeout
        self._before: Look | None = None
        self._consumed: dict[str, tuple[float, list[str]]] = {}
        """By consumer group: when it was asked which topics it has, and which."""

    def rows(self) -> dict[str, list[dict[str, object]]]:
        """Look once more; return the rows of the three tables."""
        self._cluster.restart_clock()
        self._cluster.routes(refresh=True)
        members = look(self._cluster)
        try:
            now = self._look(members)
        except DledgerError:  # no leader now: the members' table says so
            now = Look(time.monotonic(), members)
        before, self._before = self._before, now
        return {
            "members": [{name: row[name] for name in MEMBERS} for row in members],
            "topics": topic_rows(now, before),
            "consumer_groups": lag_rows(now, before),
        }

    def _look(self, members: list[dict[str, object]]) -> Look:
        found = sorted(all_topics(self._cluster, ListTopicsRequest()), key=lambda topic: topic.name)
        people = [each for each in found if not each.name.startswith(GROUP_TOPIC_PREFIXES)]
        names = [
            each.name.removeprefix(RETRY_TOPIC_PREFIX)
            for each in found
            if each.HasField("consumer_group")
        ]
        self._consumed = {name: self._consumed[name] for name in names if name in self._consumed}
        at = time.monotonic()
        queues = self._bounds(people[: self._topics])
        lags = {name: self._lag(name) for name in names[: self._groups]}
        return Look(at, members, queues, lags)

    def _bounds(self, topics: list[Topic]) -> dict[tuple[str, int], tuple[int, int]]:
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for topic in topics:
            self._cluster.restart_clock()
            for each in queue_bounds(self._cluster, topic):
                found[topic.name, each.queue] = each.minimum, each.maximum
        return found

    def _lag(self, name: str) -> list[Row]:
        self._cluster.restart_clock()
        try:
            asked_at, topics = self._consumed.get(name, (-CONSUMED_SECONDS, list[str]()))
            if time.monotonic() - asked_at >= CONSUMED_SECONDS:
                topics = consumed(self._cluster, name, self._name_servers, self._timeout)
                self._consumed[name] = time.monotonic(), topics
            return list(lag_of(self._cluster, name, topics)[0])
        except (CommandFailed, DledgerError):
            return []  # it, or one of its topics, was deleted meanwhile


def _tables(rows: dict[str, list[dict[str, object]]]) -> RenderableType:
    tables: list[RenderableType] = [Rows(rows["members"], MEMBERS, "members")]
    for name, columns, title in (
        ("topics", TOPICS, "topics"),
        ("consumer_groups", LAGS, "consumer groups"),
    ):
        if rows[name]:
            tables += ["", Rows(rows[name], columns, title)]
    return Group(*tables)
