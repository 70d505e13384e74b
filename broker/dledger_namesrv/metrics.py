"""What a name server tells those who watch it. Pure: values come from the registry at each scrape.

All series have the labels node_type ("nameserver") and node_id (the address it listens on).
"""

from collections.abc import Callable, Iterator
from typing import Final

from dledger_monitoring.series import Series, Sheet, gauge
from dledger_namesrv.registry import Registry
from dledger_proto import __version__

GROUPS_A_STEP: Final = 64

BUILD: Final = gauge("dledger_build_info", "1; the label names the version.", "version")
GROUPS: Final = gauge("dledger_nameserver_groups", "Broker groups that have a registered member.")
LEADERLESS: Final = gauge(
    "dledger_nameserver_groups_without_leader", "Of them: groups whose leader nobody knows."
)
MEMBERS: Final = gauge(
    "dledger_nameserver_members",
    "Registered members that belong to their group, by whether their stream is open.",
    "alive",
)
MISSED: Final = gauge(
    "dledger_nameserver_members_missing",
    "Members of registered groups' configurations that are not registered.",
)
TOPICS: Final = gauge("dledger_nameserver_topics", "Topics that routes tell.")
WATCHERS: Final = gauge("dledger_nameserver_watchers", "Streams of routes.")
REGISTRATIONS: Final = gauge("dledger_nameserver_registrations", "Streams of members.")

ALL: Final[tuple[Series, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Series)
)


class Metrics:
    """The series of one name server."""

    def __init__(self, registry: Registry, streams: Callable[[], tuple[int, int]]) -> None:
        """`streams`: returns how many watch routes, and how many members are connected."""
        self._registry = registry
        self._streams = streams

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write all values; see `exposition.Source`."""
        groups = self._registry.groups
        alive = listed = missing = leaderless = 0
        for at, group in enumerate(groups):
            route = group.route()
            alive += sum(member.alive for member in route.members)
            listed += len(route.members)
            missing += len(group.configured) - len(route.members)
            leaderless += not route.leader
            if at % GROUPS_A_STEP == 0:
                yield
        watchers, registrations = self._streams()
        sheet.put(BUILD, 1, __version__)
        sheet.put(GROUPS, len(groups))
        sheet.put(LEADERLESS, leaderless)
        sheet.put(MEMBERS, alive, "true")
        sheet.put(MEMBERS, listed - alive, "false")
        sheet.put(MISSED, max(missing, 0))
        sheet.put(TOPICS, self._registry.topic_count)
        sheet.put(WATCHERS, watchers)
        sheet.put(REGISTRATIONS, registrations)
        yield
