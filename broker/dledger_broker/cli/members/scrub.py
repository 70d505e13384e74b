"""`dledger scrub`: let members read all of their logs, and mend what is damaged.

Owns: whom the command asks, and what it makes of the answers. The members do the work, each from
its peers, and go on with it when the command is ended.
"""

from dataclasses import dataclass
from threading import Event
from typing import Annotated, Final

import typer

from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    Cluster,
    NameServers,
    Timeout,
    no_group,
    unknown_group,
)
from dledger_broker.cli.output import JsonFlag, bad_input, note, print_rows
from dledger_broker.cli.values import parse_size
from dledger_proto.errors import DledgerError
from dledger_proto.exit_codes import Exit
from dledger_proto.limits import MIB
from dledger_proto.v1.broker_pb2 import ScrubRequest, ScrubStatus
from dledger_proto.v1.broker_pb2_grpc import AdminStub

LOOK_SECONDS: Final = 0.5
SILENT_LOOKS_MAX: Final = 20
"""A member that does not answer so often in a row is given up."""
COLUMNS: Final = ("group", "member", "read_bytes", "found", "mended", "left", "reason")


@dataclass(slots=True)
class _Asked:
    """One member, and what is known of its scrub."""

    group: str
    member: str
    address: str
    number: int = 0
    """Of the scrub that it began; 0: none."""
    said: ScrubStatus | None = None
    """How it ended."""
    reason: str = ""
    """Why nothing is known of its end."""
    silent: int = 0

    @property
    def is_over(self) -> bool:
        return self.said is not None or bool(self.reason)

    def row(self) -> dict[str, object]:
        said = self.said
        row: dict[str, object] = {"group": self.group, "member": self.member}
        for name in ("read_bytes", "found", "mended", "left", "started_ms", "ended_ms"):
            row[name] = None if said is None else getattr(said, name)
        row["reason"] = self.reason if said is None else "; ".join(said.left_says)
        return row


def scrub(
    member: Annotated[str, typer.Argument(help="Only this member; default: all.")] = "",
    group: Annotated[str, typer.Option(help="Only this group.")] = "",
    rate: Annotated[
        str, typer.Option(help="Bytes that each member reads in a second, like 64m; 0: no bound.")
    ] = "0",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
) -> None:
    """Let members read all of their logs from the disk, and mend what is damaged from their peers.

    The command waits for the end and prints what each member found, mended and left. It ends with
    exit code 1 when damage is left, or when a member did not say how its scrub ended. A scrub goes
    on when the command is interrupted; `dledger status --json` tells its end.
    """
    request = ScrubRequest(bytes_per_second=parse_size(rate, "--rate"))
    with Cluster(name_servers, timeout) as cluster:
        asked = _members(cluster, group, member)
        for each in asked:
            _begin(cluster, each, request)
        while not all(each.is_over for each in asked):
            Event().wait(LOOK_SECONDS)
            for each in asked:
                if not each.is_over:
                    cluster.restart_clock()
                    _look(cluster, each)
    rows = [each.row() for each in asked]
    print_rows(rows, COLUMNS, as_json=as_json)
    if any(each.said is None or each.said.left for each in asked):
        raise typer.Exit(Exit.FAILED)


def _members(cluster: Cluster, group: str, member: str) -> list[_Asked]:
    """Return the members to ask, those that do not register any more among them."""
    routes = cluster.routes()
    known = {route.group: route for route in (*routes.silent_groups, *routes.groups)}
    if not known:
        no_group()
    if group and group not in known:
        unknown_group(group, known)
    found: list[_Asked] = []
    for name, route in sorted(known.items()):
        if group in ("", name):
            addresses = {each.member: each.address for each in route.silent}
            addresses |= {each.member: each.address for each in route.members}
            found += [
                _Asked(name, each, address)
                for each, address in sorted(addresses.items())
                if member in ("", each)
            ]
    if not found:
        bad_input(f"no member {member!r} is registered", "see dledger status")
    return found


def _begin(cluster: Cluster, asked: _Asked, request: ScrubRequest) -> None:
    cluster.restart_clock()
    try:
        reply = cluster.ask(
            asked.address,
            asked.group,
            lambda channel: AdminStub(channel).Scrub,
            request,
            write=False,
        )
    except DledgerError as error:
        asked.reason = error.detail or str(error)
    else:
        asked.number = reply.number


def _look(cluster: Cluster, asked: _Asked) -> None:
    """Ask how far a scrub is."""
    try:
        said = cluster.status(asked.address, asked.group).scrub
    except DledgerError as error:
        asked.silent += 1
        if asked.silent >= SILENT_LOOKS_MAX:
            asked.reason = error.detail or str(error)
        return
    if said.number > asked.number:
        asked.reason = "another scrub was asked for meanwhile"
    elif said.number < asked.number:  # it has not begun yet; or the process is another one
        asked.silent += 1
        if asked.silent >= SILENT_LOOKS_MAX:
            asked.reason = "the member started anew meanwhile"
    elif said.ended_ms:
        asked.said = said
    else:
        asked.silent = 0
        note(
            f"{asked.group}/{asked.member}: {said.read_bytes / MIB:.0f} of "
            f"{said.total_bytes / MIB:.0f} MiB, found {said.found}, mended {said.mended}"
        )
