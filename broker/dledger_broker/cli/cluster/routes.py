"""`dledger routes`: where a name server sends clients, and what each member claims."""

from collections.abc import Iterator
from typing import Annotated, Final

import typer

from dledger_broker.cli.connect import DEFAULT_NAME_SERVERS, Cluster, NameServers, Timeout
from dledger_broker.cli.output import JsonFlag, print_rows
from dledger_proto.v1.routes_pb2 import GroupRoute

COLUMNS: Final = (
    "group", "leader", "term", "member", "address", "claimed_leader", "claimed_term", "ignored",
)  # fmt: skip


def routes(
    group: Annotated[str, typer.Option(help="Only this group.")] = "",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
) -> None:
    """Show what a name server tells clients, and what each registered member claims.

    leader and term: what the name server believes of the group. claimed_leader and claimed_term:
    what this member says. ignored: why the claim does not count. Everybody who can reach a name
    server can register, so a claim counts only while the member's lease lives and most members
    agree.
    """
    with Cluster(name_servers, timeout) as cluster:
        found = (
            [cluster.group(group)]
            if group
            else sorted(cluster.routes().groups, key=lambda route: route.group)
        )
        print_rows([row for route in found for row in _rows(route)], COLUMNS, as_json=as_json)


def _rows(route: GroupRoute) -> Iterator[dict[str, object]]:
    for claim in route.claims:
        yield {
            "group": route.group,
            "leader": route.leader,
            "term": route.term,
            "member": claim.member,
            "address": claim.address,
            "claimed_leader": claim.leader,
            "claimed_term": claim.term,
            "ignored": claim.ignored,
        }
