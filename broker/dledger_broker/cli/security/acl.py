"""`dledger acl`: users and their policies.

Owns the options, and the words in which a policy is given and shown. Not owned: secrets on their
way (`secrets`), what a user is (`dledger_client`).
"""

import ipaddress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from dledger_broker.cli.asking import Yes, ask
from dledger_broker.cli.client import open_admin
from dledger_broker.cli.connect import DEFAULT_NAME_SERVERS, NameServers, Timeout
from dledger_broker.cli.output import CommandFailed, JsonFlag, bad_input, note, print_rows
from dledger_broker.cli.security.secrets import new_secret
from dledger_client import Admin, Policy, User, UserChange

USER_COLUMNS: Final = ("name", "admin", "enabled", "policies")
POLICY_COLUMNS: Final = ("rule", "actions", "of", "pattern", "networks")
RESOURCES: Final = {"topic": "--topic", "group": "--group", "cluster": "--cluster", "any": "--any"}

Name = Annotated[str, typer.Argument(help="Of the user: its access key.", show_default=False)]
SecretFile = Annotated[
    Path | None,
    typer.Option(help="Write the new secret to this file, which must not exist; mode 600."),
]
SecretFrom = Annotated[
    str,
    typer.Option(help="Take a chosen secret from this file, - for standard input, not a new one."),
]
Allow = Annotated[
    str,
    typer.Option(help="publish,subscribe,create,update,delete,get,list: some of them, or all."),
]
Deny = Annotated[str, typer.Option(help="As --allow. A denial wins over what is allowed.")]
OfTopic = Annotated[
    str, typer.Option("--topic", help="A name, the beginning of names as a*, or *.")
]
OfGroup = Annotated[str, typer.Option("--group", help="Consumer groups, given as topics are.")]
OfCluster = Annotated[bool, typer.Option("--cluster", help="What concerns the whole cluster.")]
OfAny = Annotated[str, typer.Option("--any", help="Topics and consumer groups of this name.")]
Networks = Annotated[
    list[str] | None, typer.Option("--network", help="From here alone, as 10.0.0.0/8. Repeat it.")
]
ALL_ACTIONS: Final = ("publish", "subscribe", "create", "update", "delete", "get", "list")


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="Users, and what each may do.", no_args_is_help=True)
    users = typer.Typer(help="Add, change, show and delete users.", no_args_is_help=True)
    users.command("add")(add)
    users.command("change")(change)
    users.command("secret")(secret)
    users.command("show")(show)
    users.command("list")(list_users)
    users.command("delete")(delete)
    policies = typer.Typer(help="Say what a user may do.", no_args_is_help=True)
    policies.command("add")(add_policy)
    policies.command("delete")(delete_policy)
    policies.command("list")(list_policies)
    group.add_typer(users, name="user")
    group.add_typer(policies, name="policy")
    app.add_typer(group, name="acl")


def add(
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="It may do everything.")] = False,
    secret_file: SecretFile = None,
    secret_from: SecretFrom = "",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Add a user, with a new secret of 256 bits.

    The secret is written to --secret-file, or printed once: nobody can show it again. A user that
    is no administrator may do nothing until it has a policy. Whoever has a member's certificate can
    add the first administrator: set DLEDGER_TLS_FOLDER to the member's files.
    """
    made = new_secret(secret_file, secret_from)
    with open_admin(name_servers, timeout) as client, made.kept():
        changed = client.put_user(
            User(name, is_admin=admin),
            secret=made.text,
            secret_is_drawn=made.is_drawn,
            create=True,
        )
    _tell_missing(changed)
    made.show(f"user {name} is added", _row(changed.user), as_json=as_json)


def secret(
    name: Name,
    secret_file: SecretFile = None,
    secret_from: SecretFrom = "",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Give a user a new secret. The old one ends at once, and so do its logins."""
    made = new_secret(secret_file, secret_from)
    with open_admin(name_servers, timeout) as client, made.kept():
        known = client.describe_user(name)
        changed = client.put_user(
            known.user,
            secret=made.text,
            secret_is_drawn=made.is_drawn,
            known_revision=known.revision,
        )
    _tell_missing(changed)
    made.show(f"user {name} has a new secret", _row(changed.user), as_json=as_json)


def change(
    name: Name,
    admin: Annotated[bool | None, typer.Option(help="Whether it may do everything.")] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Whether it can log in.")
    ] = None,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Change whether a user is an administrator, or can log in.

    The last administrator that can log in stays one.
    """
    if admin is None and enabled is None:
        bad_input("nothing to change", "give --admin, --no-admin, --enable or --disable")
    with open_admin(name_servers, timeout) as client:
        known = client.describe_user(name)
        user = known.user
        wanted = replace(
            user,
            is_admin=user.is_admin if admin is None else admin,
            is_enabled=user.is_enabled if enabled is None else enabled,
        )
        changed = client.put_user(wanted, known_revision=known.revision)
    _tell_missing(changed)
    print_rows([_row(changed.user)], USER_COLUMNS, as_json=as_json)


def delete(
    name: Name,
    yes: Yes = False,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Delete a user. Its logins end, and what it stored stays."""
    ask(f"user {name} is not deleted", f"Delete user {name}?", yes=yes)
    with open_admin(name_servers, timeout) as client:
        changed = client.delete_user(name)
    _tell_missing(changed)
    print_rows([_row(changed.user)], USER_COLUMNS, as_json=as_json)


def show(
    name: Name,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Show a user. Nobody can show its secret."""
    with open_admin(name_servers, timeout) as client:
        user = client.describe_user(name).user
    print_rows([_row(user)], USER_COLUMNS, as_json=as_json)


def list_users(
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """List all users."""
    with open_admin(name_servers, timeout) as client:
        users = client.list_users()
    print_rows([_row(user) for user in users], USER_COLUMNS, as_json=as_json, empty="no users")


def add_policy(
    name: Name,
    allow: Allow = "",
    deny: Deny = "",
    topic: OfTopic = "",
    group: OfGroup = "",
    cluster: OfCluster = False,
    of_any: OfAny = "",
    network: Networks = None,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Allow a user something, or deny it.

    dledger acl policy add alice --allow publish,subscribe --topic 'orders-*'
    """
    policy = _policy(allow, deny, topic, group, of_any, network, is_cluster=cluster)
    with open_admin(name_servers, timeout) as client:
        known = client.describe_user(name)
        policies = known.user.policies
        if policy not in policies:
            policies = _changed_policies(client, known, (*policies, policy))
    _print_policies(policies, as_json=as_json)


def delete_policy(
    name: Name,
    allow: Allow = "",
    deny: Deny = "",
    topic: OfTopic = "",
    group: OfGroup = "",
    cluster: OfCluster = False,
    of_any: OfAny = "",
    network: Networks = None,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Delete a policy of a user: the one that these words have added."""
    policy = _policy(allow, deny, topic, group, of_any, network, is_cluster=cluster)
    with open_admin(name_servers, timeout) as client:
        known = client.describe_user(name)
        left = tuple(each for each in known.user.policies if each != policy)
        if left == known.user.policies:
            raise CommandFailed(
                f"user {name} has no such policy", f"see: dledger acl policy list {name}"
            )
        policies = _changed_policies(client, known, left)
    _print_policies(policies, as_json=as_json)


def list_policies(
    name: Name,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """List what a user is allowed and denied."""
    with open_admin(name_servers, timeout) as client:
        policies = client.describe_user(name).user.policies
    _print_policies(policies, as_json=as_json)


def _changed_policies(
    client: Admin, known: UserChange, policies: tuple[Policy, ...]
) -> tuple[Policy, ...]:
    wanted = replace(known.user, policies=policies)
    changed = client.put_user(wanted, known_revision=known.revision)
    _tell_missing(changed)
    return changed.user.policies


def _policy(
    allow: str,
    deny: str,
    topic: str,
    group: str,
    of_any: str,
    networks: list[str] | None,
    *,
    is_cluster: bool,
) -> Policy:
    """Return the policy that the options mean; end the command when they mean none."""
    if bool(allow) == bool(deny):
        bad_input("a policy allows or denies", "give --allow or --deny, with its actions")
    given = {"topic": topic, "group": group, "cluster": "*" if is_cluster else "", "any": of_any}
    kinds = [kind for kind, pattern in given.items() if pattern]
    if len(kinds) != 1:
        bad_input(
            f"a policy is about one thing, {len(kinds)} are given",
            f"give one of {', '.join(RESOURCES.values())}",
        )
    pattern = given[kinds[0]]
    return Policy(
        kinds[0],
        pattern,
        _actions("--allow" if allow else "--deny", allow or deny),
        bool(allow),
        tuple(_network(each) for each in networks or ()),
    )


def _actions(option: str, text: str) -> tuple[str, ...]:
    words = {word.strip() for word in text.split(",")}
    if words == {"all"}:
        return ALL_ACTIONS
    unknown = words - set(ALL_ACTIONS)
    if unknown:
        bad_input(
            f"{option}: {', '.join(sorted(unknown))}, must be of {','.join(ALL_ACTIONS)}, or all"
        )
    return tuple(action for action in ALL_ACTIONS if action in words)


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        bad_input(f"--network: {error}")


def _row(user: User) -> dict[str, object]:
    return {
        "name": user.name,
        "admin": user.is_admin,
        "enabled": user.is_enabled,
        "policies": len(user.policies),
    }


def _print_policies(policies: tuple[Policy, ...], *, as_json: bool) -> None:
    rows = [
        {
            "rule": "allow" if policy.allows else "deny",
            "actions": ",".join(policy.actions),
            "of": policy.kind,
            "pattern": policy.pattern,
            "networks": ",".join(policy.networks),
        }
        for policy in policies
    ]
    print_rows(rows, POLICY_COLUMNS, as_json=as_json, empty="no policies: it may do nothing")


def _tell_missing(changed: UserChange) -> None:
    if changed.missing_groups:
        note(
            f"these groups have not taken the change over yet, and will by themselves: "
            f"{', '.join(changed.missing_groups)}"
        )
