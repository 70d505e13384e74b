"""`dledger tls`: an authority, and a folder with key and certificate for each process.

Owns the options, and which names a certificate gets. Does not own certificates (`security`), how
they are shown (`issuing.py`), a change of the authority (`replacing.py`).
"""

import ipaddress
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from dledger_broker.cli.output import CommandFailed, JsonFlag, bad_input, print_rows
from dledger_broker.cli.security import replacing
from dledger_broker.cli.security.issuing import COLUMNS, issue_all, row_of
from dledger_broker.config.sections import check_broker_group, check_name
from dledger_broker.security.authority import (
    AUTHORITY_DAYS,
    AUTHORITY_FOLDER,
    AUTHORITY_FOLDERS,
    DAYS,
    DAYS_MAX,
    Authority,
    Wanted,
    processes,
)
from dledger_proto.network.addresses import check_address
from dledger_proto.network.tls import (
    PROOF_DOMAIN,
    SCHEME,
    TlsError,
    client_name,
    is_proof_host,
    member_name,
    name_server_name,
    proof_host,
)
from dledger_proto.network.tls_files import CERTIFICATE

NAME_SERVER_FOLDER: Final = "name-server"
THIS_HOST: Final = ("localhost", "127.0.0.1", "::1")

Folder = Annotated[Path, typer.Argument(help="The folder of the authority and its certificates.")]
Members = Annotated[
    list[str] | None,
    typer.Option(
        "--member",
        help="[GROUP/]MEMBER=HOST,HOST...: a member, and the names and addresses by which others "
        "reach it. The same member of several groups: repeat it.",
    ),
]
NameServerHosts = Annotated[
    str, typer.Option("--name-server", help="HOST,HOST...: those of all name servers.")
]
Clients = Annotated[
    list[str] | None, typer.Option("--client", help="A client, a tool or a job. Repeat it.")
]
Days = Annotated[int, typer.Option(min=1, max=DAYS_MAX, help="Days that a certificate holds.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="Make the certificates of a cluster.", no_args_is_help=True)
    group.command("init")(init)
    group.command("issue")(issue)
    group.command("show")(show)
    group.command("proof")(proof)
    replacing.add_to(group)
    app.add_typer(group, name="tls")


def init(
    folder: Folder,
    cluster: Annotated[str, typer.Option(help="The cluster's name, as its members have it.")],
    member: Members = None,
    name_server: NameServerHosts = "",
    client: Clients = None,
    group: Annotated[str, typer.Option(help="Of members that are given without one.")] = "",
    days: Days = DAYS,
    as_json: JsonFlag = False,
) -> None:
    """Make an authority for a cluster, and certificates for its processes.

    Copy each process's folder to where it runs, and nothing else: whoever has the folder
    `authority` can make more certificates. Then set tls.folder of members, --tls-folder of name
    servers, and DLEDGER_TLS_FOLDER for commands.
    """
    _checked("--cluster", cluster, check_name)
    wanted = list(_wanted(cluster, group, member or [], name_server, client or []))
    if (folder / AUTHORITY_FOLDER).exists():
        raise CommandFailed(
            f"{folder / AUTHORITY_FOLDER} exists",
            "make more certificates of it with dledger tls issue, or choose another folder",
        )
    authority = Authority.make(cluster, AUTHORITY_DAYS)
    authority.store(folder)
    issue_all(authority, folder, wanted, days, as_json=as_json)


def issue(
    folder: Folder,
    member: Members = None,
    name_server: NameServerHosts = "",
    client: Clients = None,
    group: Annotated[str, typer.Option(help="Of members that are given without one.")] = "",
    days: Days = DAYS,
    as_json: JsonFlag = False,
) -> None:
    """Make certificates of an authority that is there: for new processes, or again for old ones.

    A process that runs takes its new certificate from its folder by itself.
    """
    try:
        authority = Authority.load(folder)
    except TlsError as error:
        bad_input(str(error), "make an authority with dledger tls init")
    wanted = list(_wanted(authority.cluster, group, member or [], name_server, client or []))
    if not wanted:
        bad_input("nothing to make", "give --member, --name-server or --client")
    issue_all(authority, folder, wanted, days, as_json=as_json)


def show(
    folder: Annotated[Path, typer.Argument(help="Of one process, or the folder of all.")],
    as_json: JsonFlag = False,
) -> None:
    """Show who a certificate is for, and until when it holds."""
    folders = [folder] if (folder / CERTIFICATE).exists() else processes(folder)
    rows = [row_of(each) for each in folders]
    if not rows:
        bad_input(f"{folder}: no {CERTIFICATE}")
    print_rows(rows, COLUMNS, as_json=as_json, empty="")


def proof(
    name: Annotated[list[str], typer.Argument(help="dledger://CLUSTER/member/GROUP/MEMBER")],
    as_json: JsonFlag = False,
) -> None:
    """Show the DNS name that a server's certificate needs for each of its names.

    For authorities of your own: members check it before they call a member or a name server.
    The certificates of dledger tls have it.
    """
    for each in name:
        if not each.startswith(SCHEME):
            bad_input(f"NAME: {each}, must begin with {SCHEME}")
    rows: list[dict[str, object]] = [{"name": each, "dns": proof_host(each)} for each in name]
    print_rows(rows, ("name", "dns"), as_json=as_json, empty="")


def _wanted(
    cluster: str, group: str, members: list[str], name_server: str, clients: list[str]
) -> Iterator[Wanted]:
    """Yield the certificates that the options ask for."""
    by_member: dict[str, tuple[list[str], list[str]]] = {}
    for given in members:
        name, equals, hosts = given.partition("=")
        of_group, _, member = name.rpartition("/")
        if not equals or not (of_group or group):
            bad_input(f"--member: {given}, must be GROUP/MEMBER=HOST,HOST", "or give --group")
        _checked("--member", of_group or group, check_broker_group)
        _checked("--member", member, check_name)
        names, known = by_member.setdefault(member, ([], []))
        names.append(member_name(cluster, of_group or group, member))
        known += [host for host in _hosts("--member", hosts) if host not in known]
    for member, (names, known) in by_member.items():
        if member in {*AUTHORITY_FOLDERS, NAME_SERVER_FOLDER, *map(_client_folder, clients)}:
            bad_input(f"--member: {member}, is the name of another folder")
        yield Wanted(member, names, [*known, *_here(known)])
    if name_server:
        hosts_of_all = _hosts("--name-server", name_server)
        hosts_of_all += _here(hosts_of_all)
        yield Wanted(NAME_SERVER_FOLDER, [name_server_name(cluster)], hosts_of_all)
    for client in dict.fromkeys(clients):
        _checked("--client", client, check_name)
        yield Wanted(_client_folder(client), [client_name(cluster, client)])


def _client_folder(client: str) -> str:
    return f"client-{client}"


def _here(hosts: list[str]) -> list[str]:
    """Return the names of the own machine that are missing: health checks call there."""
    return [host for host in THIS_HOST if host not in hosts]


def _hosts(option: str, text: str) -> list[str]:
    hosts = [part.strip() for part in text.split(",") if part.strip()]
    if not hosts:
        bad_input(f"{option}: {text!r}, names no host")
    for host in hosts:
        try:
            ipaddress.ip_address(host.strip("[]"))
            continue
        except ValueError:  # a name, then, without a port
            pass
        try:
            check_address(f"{host}:1")
        except ValueError as error:
            bad_input(f"{option}: {host}, {error}")
        if is_proof_host(host):
            bad_input(f"{option}: {host}, must be no name below {PROOF_DOMAIN[1:]}")
    return list(dict.fromkeys(hosts))


def _checked(option: str, value: str, rule: Callable[[str], str]) -> None:
    try:
        rule(value)
    except ValueError as error:
        bad_input(f"{option}: {value}, {error}")
