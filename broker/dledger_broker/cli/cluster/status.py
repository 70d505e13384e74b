"""`dledger status`: every member of every group, asked one by one, in a table."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Final, cast

import typer
from rich.console import Group
from rich.text import Text

from dledger_broker.cli.cluster.status_rows import (
    Answer,
    Known,
    group_rows,
    is_led,
    members_of,
    others_of,
)
from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    Cluster,
    NameServers,
    Timeout,
    no_group,
    unknown_group,
)
from dledger_broker.cli.live.refresh import refreshed
from dledger_broker.cli.output import (
    JsonFlag,
    answering,
    console,
    print_json,
)
from dledger_broker.cli.tables import Rows
from dledger_broker.cli.values import shown_time
from dledger_proto.errors import DledgerError
from dledger_proto.exit_codes import Exit
from dledger_proto.limits import GIB, MIB
from dledger_proto.names import printable

COLUMNS: Final = (
    "member",
    "address",
    "role",
    "term",
    "leader",
    "match_index",
    "commit",
    "applied",
    "lag",
    "flush",
    "clock_offset_ms",
    "reason",
)
ASKED_AT_ONCE_MAX: Final = 32


def status(
    group: Annotated[str, typer.Option(help="Only this group.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between refreshes.")] = 1.0,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
) -> None:
    """Show role, term, leader, progress, flush mode and clock of every configured member.

    A silent member is shown, too, with the time since the other members last heard it. A leader is
    shown only if it says itself that it leads.

    match index: the last entry that the leader knows to be on the member's disk. lag: entries of
    the leader's log behind it. clock offset: how far the member's clock is from the majority's
    median. reason: why a member does not serve, what on its disk is damaged, that its clock is off
    by more than a second, or why a leader does not receive the control group's topics. Below a
    group: what keeps the oldest segment of its log from being deleted, which consumer groups will
    soon lose messages that they have not read, which members have no TLS, the free space of each
    member's disk, and what its last scrub found.
    """
    with Cluster(name_servers, timeout) as cluster:
        if not watch:
            rows = look(cluster, group)
            if as_json:
                print_json(rows)
            else:
                with answering():
                    console().print(Group(*_tables(rows)))
            if any(row["reason"] for row in rows) or not is_led(rows):
                raise typer.Exit(Exit.FAILED)
            return
        refreshed(
            lambda: _look_again(cluster, group),
            lambda rows: Group(*_tables(rows)),
            every,
            as_json=as_json,
        )


def _look_again(cluster: Cluster, group: str) -> list[dict[str, object]]:
    cluster.restart_clock()
    cluster.routes(refresh=True)
    return look(cluster, group)


def look(cluster: Cluster, only: str = "") -> list[dict[str, object]]:
    """Return a row for each member of each group; the row of a silent member says why."""
    routes = cluster.routes()
    groups = {route.group: route for route in (*routes.silent_groups, *routes.groups)}
    if not groups:
        no_group()
    if only and only not in groups:
        unknown_group(only, groups)
    asked = [groups[only]] if only else [groups[name] for name in sorted(groups)]
    known = {route.group: members_of(route) for route in asked}
    answers = _ask_all(cluster, known)
    others = {name: others_of(known[name], answers[name]) for name in known}
    for name, more in _ask_all(cluster, others).items():
        answers[name] |= more
        known[name] |= others[name]
    now_ms = round(time.time() * 1_000)
    return [
        row
        for route in asked
        for row in group_rows(route, known[route.group], answers[route.group], now_ms)
    ]


def _ask_all(
    cluster: Cluster, known: Mapping[str, Mapping[str, Known]]
) -> dict[str, dict[str, Answer]]:
    """Ask all members that have an address at once; return their answers by group and name."""
    answers: dict[str, dict[str, Answer]] = {group: {} for group in known}
    wanted = [(group, member) for group in known for member in known[group].values()]
    with ThreadPoolExecutor(ASKED_AT_ONCE_MAX) as pool:
        asked = [
            (group, member.name, pool.submit(_ask, cluster, member.address, group))
            for group, member in wanted
            if member.address
        ]
        for group, name, future in asked:
            answers[group][name] = future.result()
    return answers


def _ask(cluster: Cluster, address: str, group: str) -> Answer:
    try:
        return cluster.status(address, group)
    except DledgerError as error:
        return error


def _tables(rows: Sequence[dict[str, object]]) -> list[Rows | Text]:
    tables: list[Rows | Text] = []
    for group in sorted({str(row["group"]) for row in rows}):
        mine = [row for row in rows if row["group"] == group]
        title = f"{group} (control group)" if mine[0]["control_group"] else group
        tables.append(Rows(mine, COLUMNS, title))
        for row in mine:
            if row["role"] == "leader" and row["head_kept"]:
                kept = "; ".join(cast("list[str]", row["head_kept"]))
                tables.append(Text(printable(f"the oldest segment of the log stays: {kept}")))
            if row["role"] == "leader":
                said = cast("list[str]", row["endangered"])
                tables += [Text(printable(f"consumer group {each}")) for each in said]
        bare = [str(row["member"]) for row in mine if row.get("security") == "off"]
        if bare:
            tables.append(Text(printable(f"security is off: {', '.join(bare)}")))
        disks = [f"{row['member']} {_room(row)}" for row in mine if row.get("disk_free_bytes")]
        if disks:
            tables.append(Text(printable(f"disk: {', '.join(disks)}")))
        scrubs = [f"{row['member']} {_told(row['scrub'])}" for row in mine if row.get("scrub")]
        if scrubs:
            tables.append(Text(printable(f"last scrub: {'; '.join(scrubs)}")))
    return tables


def _room(row: Mapping[str, object]) -> str:
    """Return how much room a member's disk has, and how long its log is."""
    of = cast("Mapping[str, int]", row)
    log = of["last_position"] - of["first_position"]
    return f"{of['disk_free_bytes'] / GIB:,.1f} GiB free, log {log / GIB:,.1f} GiB"


def _told(scrub: object) -> str:
    """Return what a scrub found, in a few words."""
    of = cast("Mapping[str, int]", scrub)
    ended = shown_time(of["ended_ms"]) if of["ended_ms"] else "under way"
    size = f"{of['read_bytes'] / MIB:.0f} MiB"
    return f"{ended}, {size}, found {of['found']}, mended {of['mended']}, left {of['left']}"
