"""`dledger snapshot`: make, list and delete snapshots of running members."""

import time
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, NamedTuple

import typer

from dledger_broker.cli.asking import Yes, ask
from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    Cluster,
    Method,
    NameServers,
    Reply,
    Request,
    Timeout,
)
from dledger_broker.cli.output import CommandFailed, JsonFlag, bad_input, note, print_rows
from dledger_broker.cli.values import shown_time
from dledger_proto.v1.snapshots_pb2 import (
    CreateSnapshotRequest,
    DeleteSnapshotRequest,
    ListSnapshotsReply,
    ListSnapshotsRequest,
    Snapshot,
)
from dledger_proto.v1.snapshots_pb2_grpc import SnapshotsStub

COLUMNS: Final = ("group", "member", "name", "last_index", "time", "size", "path", "problem")
LOOK_SECONDS: Final = 0.5

Name = Annotated[str, typer.Argument(help="Of the snapshot.", show_default=False)]
OfGroup = Annotated[str, typer.Option("--group", help="Only this broker group. Default: all.")]
OfMember = Annotated[str, typer.Option("--member", help="Only this member.")]


class Place(NamedTuple):
    """A member of a group."""

    group: str
    member: str
    address: str


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="Make, list and delete snapshots of running members.", no_args_is_help=True
    )
    group.command("create")(create)
    group.command("list")(list_all)
    group.command("delete")(delete)
    app.add_typer(group, name="snapshot")


def create(
    name: Name,
    group: OfGroup = "",
    member: OfMember = "",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Make a snapshot of each broker group: a consistent copy of its log and state.

    One member of each group makes it, in its own data folder, and goes on with its work meanwhile.
    The control group comes last: it must know all decisions that the others have taken over.
    By default that is a member that does not lead. Sealed segments of the log are hard links, so
    they take no room until the member lets them go. Copy the folder that the answer names to
    another machine. `dledger restore` makes a new cluster of it; `dledger inspect` and Spark read
    it as they read the folder of a stopped member.
    """
    with Cluster(name_servers, timeout) as cluster:
        rows: list[dict[str, object]] = []
        for place in _one_of_each(_places(cluster, group, member)):
            request = CreateSnapshotRequest(member=place.member, name=name)
            _call(cluster, place, lambda channel: SnapshotsStub(channel).Create, request)
            rows.append(_row(place, _whole(cluster, place, name)))
    print_rows(rows, COLUMNS, as_json=as_json)


def list_all(
    group: OfGroup = "",
    member: OfMember = "",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """List the snapshots that members keep."""
    rows: list[dict[str, object]] = []
    with Cluster(name_servers, timeout) as cluster:
        for place in _places(cluster, group, member):
            reply = _listed(cluster, place)
            rows += [_row(place, snapshot) for snapshot in reply.snapshots]
            if reply.making:
                state = f"failed: {reply.problem}" if reply.problem else "is being made"
                note(f"{place.group}/{place.member}: snapshot {reply.making} {state}")
    print_rows(rows, COLUMNS, as_json=as_json, empty="no snapshots")


def delete(
    name: Name,
    group: OfGroup = "",
    member: OfMember = "",
    yes: Yes = False,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Delete a snapshot from every member that keeps it."""
    ask(f"snapshot {name} is not deleted", f"Delete snapshot {name}?", yes=yes)
    rows: list[dict[str, object]] = []
    with Cluster(name_servers, timeout) as cluster:
        for place in _places(cluster, group, member):
            if any(each.name == name for each in _listed(cluster, place).snapshots):
                request = DeleteSnapshotRequest(member=place.member, name=name)
                _call(cluster, place, lambda channel: SnapshotsStub(channel).Delete, request)
                rows.append({"group": place.group, "member": place.member, "name": name})
    if not rows:
        raise CommandFailed(f"no member keeps a snapshot {name!r}", "see: dledger snapshot list")
    print_rows(rows, ("group", "member", "name"), as_json=as_json)


def _places(cluster: Cluster, group: str, member: str) -> Iterator[Place]:
    """Iterate over the members that are asked: the control group last, of a group its leader."""
    cluster.group(group)  # ends the command when the group is not known, or nobody is
    found = False
    for route in sorted(cluster.routes().groups, key=lambda route: route.control_group):
        if group not in ("", route.group):
            continue
        for each in sorted(route.members, key=lambda each: each.member == route.leader):
            if member in ("", each.member):
                found = True
                yield Place(route.group, each.member, each.address)
    if not found:
        bad_input(f"--member: {member}", "must be a member that runs; see: dledger status")


def _one_of_each(places: Iterable[Place]) -> list[Place]:
    chosen: dict[str, Place] = {}
    for place in places:
        chosen.setdefault(place.group, place)
    return list(chosen.values())


def _call(
    cluster: Cluster,
    place: Place,
    method: "Method[Request, Reply]",
    request: Request,
    *,
    write: bool = True,
) -> Reply:
    """Ask exactly this member, with the whole timeout."""
    cluster.restart_clock()
    return cluster.ask(place.address, place.group, method, request, write=write)


def _listed(cluster: Cluster, place: Place) -> ListSnapshotsReply:
    request = ListSnapshotsRequest(member=place.member)
    return _call(cluster, place, lambda channel: SnapshotsStub(channel).List, request, write=False)


def _whole(cluster: Cluster, place: Place, name: str) -> Snapshot:
    """Wait until a snapshot is whole, and return it."""
    while True:
        reply = _listed(cluster, place)
        for snapshot in reply.snapshots:
            if snapshot.name == name:
                return snapshot
        if reply.making != name or reply.problem:
            raise CommandFailed(
                f"{place.group}/{place.member}: snapshot {name} was not made: "
                f"{reply.problem or 'the member was started again'}"
            )
        time.sleep(LOOK_SECONDS)


def _row(place: Place, snapshot: Snapshot) -> dict[str, object]:
    return {
        "group": place.group,
        "member": place.member,
        "name": snapshot.name,
        "last_index": snapshot.last_index,
        "time": "" if snapshot.problem else shown_time(snapshot.time_ms),
        "size": snapshot.size,
        "path": snapshot.path,
        "digest": snapshot.digest,
        "problem": snapshot.problem,
    }
