"""`dledger status`: every member of every group, asked one by one, in a table."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Final

import typer
from rich.console import Group
from rich.live import Live

from dledger_broker.cli.connect import DEFAULT_NAME_SERVERS, Cluster, NameServers, Timeout
from dledger_broker.cli.output import (
    EXIT_CODES_HELP,
    CommandFailed,
    Exit,
    JsonFlag,
    console,
    print_json,
)
from dledger_broker.cli.tables import Rows
from dledger_proto.errors import DledgerError
from dledger_proto.v1.broker_pb2 import StatusReply
from dledger_proto.v1.routes_pb2 import GroupRoute, MemberRoute

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
    "reason",
)
ASKED_AT_ONCE_MAX: Final = 32


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    epilog = f"{EXIT_CODES_HELP} Here 1 means that a group has no leader or a member no answer."
    app.command("status", epilog=epilog)(status)


def status(
    group: Annotated[str, typer.Option(help="Only this group.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between refreshes.")] = 1.0,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
) -> None:
    """Show role, term, leader, progress and flush mode of every member.

    match index: what the leader knows to be on the member's disk; lag: entries of the leader's log
    that are not. `reason` says why a member does not serve, or why a leader does not learn of the
    control group's topics.
    """
    with Cluster(name_servers, timeout) as cluster:
        if not watch:
            rows = look(cluster, group)
            if as_json:
                print_json(rows)
            else:
                for table in _tables(rows):
                    console().print(table)
            if any(row["reason"] for row in rows) or not _all_led(rows):
                raise typer.Exit(Exit.FAILED)
            return
        _watch(cluster, group, every, as_json)


def _watch(cluster: Cluster, group: str, every: float, as_json: bool) -> None:
    try:
        if as_json:
            while True:
                print_json(_look_again(cluster, group))
                time.sleep(every)
        # Visible: rows below the end of the screen are not left out.
        with Live(console=console(), auto_refresh=False, vertical_overflow="visible") as live:
            while True:
                live.update(Group(*_tables(_look_again(cluster, group))), refresh=True)
                time.sleep(every)
    except KeyboardInterrupt:
        return


def _look_again(cluster: Cluster, group: str) -> list[dict[str, object]]:
    cluster.restart_clock()
    cluster.routes(refresh=True)
    return look(cluster, group)


def look(cluster: Cluster, only: str = "") -> list[dict[str, object]]:
    """Return a row for each member; one that does not answer has the reason in its row."""
    routes = [cluster.group(only)] if only else sorted(cluster.routes().groups, key=_name)
    if not routes:
        raise CommandFailed(
            "no broker group is registered", "start its members", code=Exit.UNREACHABLE
        )
    pairs = [(route, member) for route in routes for member in route.members]
    with ThreadPoolExecutor(ASKED_AT_ONCE_MAX) as pool:
        asked = [pool.submit(_ask, cluster, route, member) for route, member in pairs]
        replies = [future.result() for future in asked]
    rows: list[dict[str, object]] = []
    for route in routes:
        answers = [
            (member, reply)
            for (its_route, member), reply in zip(pairs, replies, strict=True)
            if its_route is route
        ]
        rows += _group_rows(route, answers)
    return rows


def _name(route: GroupRoute) -> str:
    return route.group


def _ask(cluster: Cluster, route: GroupRoute, member: MemberRoute) -> StatusReply | DledgerError:
    try:
        return cluster.status(member.address, route.group)
    except DledgerError as error:
        return error


def _group_rows(
    route: GroupRoute, answers: Sequence[tuple[MemberRoute, StatusReply | DledgerError]]
) -> list[dict[str, object]]:
    leader = max(
        (
            reply
            for _, reply in answers
            if isinstance(reply, StatusReply) and reply.role == "leader"
        ),
        key=lambda reply: reply.term,
        default=None,
    )
    listed = {member.member for member, _ in answers}
    rows = [_row(route, member, reply, leader) for member, reply in answers]
    # A member that the name server has dropped is still known to the leader: by its published
    # address, also inside.
    for progress in leader.members if leader is not None else ():
        if progress.member not in listed:
            absent = MemberRoute(member=progress.member, address=progress.address)
            reason = "is not registered at the name server"
            rows.append(_silent_row(route, absent, leader, reason))
    return sorted(rows, key=lambda row: str(row["member"]))


def _row(
    route: GroupRoute,
    member: MemberRoute,
    reply: StatusReply | DledgerError,
    leader: StatusReply | None,
) -> dict[str, object]:
    if isinstance(reply, DledgerError):
        return _silent_row(route, member, leader, reply.detail or str(reply))
    match_index = _match_index(member.member, leader)
    if reply.role == "leader":
        match_index = reply.durable_index
    reason = reply.reason
    if not reason and reply.topics_problem:
        reason = f"topics are not followed: {reply.topics_problem}"
    if not reason:
        reason = _refused_by(leader, member.member)
    return {
        "group": route.group,
        "control_group": route.control_group,
        "member": member.member,
        "address": member.address,
        "role": reply.role,
        "term": reply.term,
        "leader": reply.leader,
        "match_index": match_index,
        "commit": reply.commit_index,
        "applied": reply.applied_index,
        "lag": _lag(match_index, leader),
        "flush": reply.flush_mode,
        "reason": reason,
        "first_index": reply.first_index,
        "last_index": reply.last_index,
        "durable_index": reply.durable_index,
        "first_position": reply.first_position,
        "last_position": reply.last_position,
        "digest": reply.digest.hex(),
        "format_level": reply.format_level,
        "group_id": reply.group_id.hex(),
        "incarnation": reply.incarnation,
        "clock_offset_ms": reply.clock_offset_ms,
        "version": reply.version,
    }


def _silent_row(
    route: GroupRoute, member: MemberRoute, leader: StatusReply | None, reason: str
) -> dict[str, object]:
    match_index = _match_index(member.member, leader)
    return {
        "group": route.group,
        "control_group": route.control_group,
        "member": member.member,
        "address": member.address,
        "role": "no answer",
        "term": None,
        "leader": None,
        "match_index": match_index,
        "commit": None,
        "applied": None,
        "lag": _lag(match_index, leader),
        "flush": None,
        "reason": reason,
    }


def _refused_by(leader: StatusReply | None, member: str) -> str:
    if leader is None:
        return ""
    refusals = {progress.member: progress.refused for progress in leader.members}
    why = refusals.get(member, "")
    return f"{leader.member} refused: {why}" if why else ""


def _match_index(member: str, leader: StatusReply | None) -> int | None:
    for progress in leader.members if leader is not None else ():
        if progress.member == member:
            return progress.match_index
    return None


def _lag(match_index: int | None, leader: StatusReply | None) -> int | None:
    if leader is None or match_index is None:
        return None
    return max(leader.last_index - match_index, 0)


def _all_led(rows: Sequence[dict[str, object]]) -> bool:
    groups = {row["group"] for row in rows}
    return groups == {row["group"] for row in rows if row["role"] == "leader"}


def _tables(rows: Sequence[dict[str, object]]) -> list[Rows]:
    tables: list[Rows] = []
    for group in sorted({str(row["group"]) for row in rows}):
        mine = [row for row in rows if row["group"] == group]
        title = f"{group} (control group)" if mine[0]["control_group"] else group
        tables.append(Rows(mine, COLUMNS, title))
    return tables
