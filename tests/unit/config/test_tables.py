"""The two tables of a group, `members` and `clients`: where they are given, what they may hold."""

from pathlib import Path

import pytest

from dledger_broker.config.load import load_config
from tests.unit.config.support import GOOD, lines


@pytest.mark.parametrize("short", [True, False])
def test_where_clients_reach_members_is_another_table(file: Path, short: bool) -> None:
    clients = 'clients = { c = "h:3", a = "h:1", b = "h:2" }\n'
    head, group = GOOD.split("[group]\n")
    file.write_text(
        head + 'group = "orders-1"\n' + clients + group.partition("\n")[2]
        if short
        else GOOD + clients
    )
    loaded = load_config(file, {})
    assert dict(loaded.config.groups[0].clients) == {"a": "h:1", "b": "h:2", "c": "h:3"}
    assert loaded.config.groups[0].members["a"] == "host-1:10911"
    shown = {value.key: (value.value, value.source) for value in loaded.effective_values()}
    assert shown["group.clients"] == ("c=h:3, a=h:1, b=h:2", "file member.toml")
    given = load_config(file, {"DLEDGER_CLIENTS": "a=i:1,b=i:2,c=i:3"}).config
    assert given.groups[0].clients["c"] == "i:3"


def test_tables_beside_a_group_that_the_environment_names(file: Path) -> None:
    head, group = GOOD.split("[group]\n")
    file.write_text(head + group.partition("\n")[2])
    (group_read,) = load_config(file, {"DLEDGER_GROUP": "g"}).config.groups
    assert (group_read.name, group_read.members["a"]) == ("g", "host-1:10911")
    assert lines(file) == ["group.name: required"]


@pytest.mark.parametrize(
    ("clients", "expected"),
    [
        (
            'a = "h:1", b = "h:2"',
            "group.clients = a, b (file member.toml): must name exactly the members: a, b, c",
        ),
        (
            'a = "h:1", b = "h:2", c = "h:3", d = "h:4"',
            "group.clients = a, b, c, d (file member.toml): must name exactly the members: a, b, c",
        ),
        (
            'a = "h:1", b = "h:2", c = "h:1"',
            "group.clients.c = h:1 (file member.toml): is also the address of a",
        ),
        (
            'a = "h:1", b = "h:2", c = "H:01"',
            "group.clients.c = H:01 (file member.toml): is also the address of a",
        ),
        (
            'a = "h:1", b = "h:2", c = "[::]:1"',
            "group.clients.c = [::]:1 (file member.toml): is an address to listen on; give the "
            "address where others reach this member",
        ),
        (
            f'a = "h:1", b = "h:2", {"c" * 1_000} = "h:3"',
            f"group.clients.{'c' * 186}... = {'c' * 80}... (file member.toml): must be 1 to 120 "
            "letters, digits, '_' or '-', and begin with a letter or digit",
        ),
        (
            "",
            "group.clients = {} (file member.toml): must have at least 1 item after validation, "
            "not 0",
        ),
        (
            'a = "h:1", b = "h:2", c = "h"',
            'group.clients.c = h (file member.toml): must be "host:port" (an IPv6 host in '
            "brackets)",
        ),
        (
            f'a = "h:1", b = "h:2", c = "{"h." * 151}i:3"',
            f"group.clients.c = {'h.' * 40}... (file member.toml): has 305 characters, must be at "
            "most 300",
        ),
    ],
)
def test_clients_addresses_name_each_member_once(file: Path, clients: str, expected: str) -> None:
    assert lines(file, GOOD + f"clients = {{ {clients} }}\n") == [expected]


def test_one_value_is_given_once(file: Path) -> None:
    clients = '{ a = "h:1", b = "h:2", c = "h:3" }'
    text = f"clients = {clients}\n{GOOD}clients = {clients}\n"
    (line,) = lines(file, text)
    assert line.startswith("clients = {'a': 'h:1', ")
    assert line.endswith(": give either [clients] or [group] clients, not both")
    file.write_text(GOOD)
    environment = {
        "DLEDGER_CLIENTS": "a=h:1,b=h:2,c=h:3",
        "DLEDGER_GROUP_CLIENTS": "a=i:1,b=i:2,c=i:3",
        "DLEDGER_MEMBERS": "a=h:1,b=h:2,b=h:3",
    }
    assert lines(file, **environment) == [
        "DLEDGER_GROUP_CLIENTS = a=i:1,b=i:2,c=i:3: DLEDGER_CLIENTS sets the same value",
        "DLEDGER_MEMBERS = a=h:1,b=h:2,b=h:3: must name each member once",
    ]


def test_an_empty_variable_does_not_take_the_files_table_away(file: Path) -> None:
    text = GOOD + 'clients = { a = "h:1", b = "h:2", c = "h:3" }\n'
    file.write_text(text)
    loaded = load_config(file, {"DLEDGER_CLIENTS": ""})
    assert dict(loaded.config.groups[0].clients) == {"a": "h:1", "b": "h:2", "c": "h:3"}
