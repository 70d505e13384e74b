"""Where members take each other's links, and where they dial: what cannot work is refused."""

from pathlib import Path

import pytest

from dledger_broker.config.load import load_config
from tests.unit.config.support import GOOD, lines

LINKS = '[group.links]\na = "h:1"\nb = "h:2"\nc = "h:3"\n'


def test_links_have_ports_of_their_own(file: Path) -> None:
    """By default those above; never where another member serves."""
    config = load_config(file, {}).config
    assert config.link_listen == "0.0.0.0:10912"
    assert config.groups[0].links["b"] == "host-2:10912"
    one_host = GOOD.replace("host-2:10911", "host-1:10912")
    assert lines(file, one_host) == [
        "group.members.a = host-1:10911 (file member.toml): the port above, on which its links are "
        "dialled, is group.members.b = host-1:10912: set group.links"
    ]
    given = one_host + '[group.links]\na = "host-1:1"\nb = "host-1:2"\nc = "[::1]:1"\n'
    file.write_text(given)
    assert load_config(file, {}).config.groups[0].links["b"] == "host-1:2"
    assert lines(file, given.replace('b = "host-1:2"', 'b = "host-1:1"')) == [
        "group.links.b = host-1:1 (file member.toml): is also the address of a"
    ]
    assert lines(file, given.replace('b = "host-1:2"', 'b = "Host-1:10911"')) == [
        "group.links.b = Host-1:10911 (file member.toml): is also group.members.a = host-1:10911; "
        "links need a port of their own"
    ]
    assert lines(file, given.replace('c = "[::1]:1"', 'd = "[::1]:1"')) == [
        "group.links = a, b, d (file member.toml): must name exactly the members: a, b, c"
    ]
    highest = GOOD.replace("[::1]:10911", "[::1]:65535").replace("0:10911", "0:65535")
    assert lines(file, highest) == [
        "listen = 0.0.0.0:65535 (file member.toml): has no port above; set link_listen",
        "group.members.c = [::1]:65535 (file member.toml): has no port above; set group.links",
    ]


def test_the_others_dial_the_port_on_which_links_are_taken(file: Path) -> None:
    """Without `links` it must be the one above this member's; `links` may lead elsewhere."""
    elsewhere = 'link_listen = "0.0.0.0:7"\n' + GOOD
    dialled = "the other members dial 10912, the port above group.members.a = host-1:10911: "
    assert lines(file, elsewhere) == [
        f"link_listen = 0.0.0.0:7 (file member.toml): links are taken on port 7, and {dialled}"
        "set group.links"
    ]
    forwarded = GOOD.replace("0.0.0.0:10911", "0.0.0.0:7")
    assert lines(file, forwarded) == [
        f"listen = 0.0.0.0:7 (file member.toml): links are taken on port 8, and {dialled}"
        "set group.links"
    ]
    alone = forwarded.replace(', b = "host-2:10911", c = "[::1]:10911"', "")
    for text in (elsewhere + LINKS, forwarded + LINKS, alone):
        file.write_text(text)
        load_config(file, {})
    assert lines(file, 'link_listen = "127.0.0.1:10911"\n' + GOOD + LINKS) == [
        "link_listen = 127.0.0.1:10911 (file member.toml): has the port of listen = 0.0.0.0:10911; "
        "links need a port of their own"
    ]


def test_all_groups_of_a_process_have_one_port_for_links(file: Path) -> None:
    head = GOOD[: GOOD.index("[group]")]
    group = GOOD[GOOD.index("[group]") :].replace("[group]", "[[groups]]")
    first = group + LINKS.replace("[group.", "[groups.")
    second = first.replace("orders-1", "orders-2")
    file.write_text(head + first + second.replace("h:1", "other:1"))
    load_config(file, {})
    by_first = "and 1 by group orders-1.links.a = h:1: a process takes the links of all its groups "
    assert lines(file, head + first + second.replace("h:1", "h:4")) == [
        f"group orders-2.links.a = h:4: the other members dial port 4 for links, {by_first}"
        "on one port"
    ]
    assert lines(file, head + first + group.replace("orders-1", "orders-2")) == [
        "group orders-2.members.a = host-1:10911: the other members dial port 10912 for links, "
        f"{by_first}on one port"
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("localhost", "127.0.0.1"),
        ("LOCALHOST", "[::1]"),
        ("[0:0::1]", "[::1]"),
        ("[::ffff:10.0.0.1]", "10.0.0.1"),
        ("[FD00::1]", "[fd00:0::1]"),
    ],
)
def test_a_host_is_the_same_however_it_is_written(file: Path, one: str, other: str) -> None:
    text = GOOD.replace("host-1:", f"{one}:").replace("host-2:", f"{other}:")
    text = text.replace('[::1]:10911" }', 'host-3:10911" }')
    assert lines(file, text) == [
        f"group.members.b = {other}:10911 (file member.toml): is also the address of a",
    ]


def test_no_spelling_of_all_addresses_is_one_to_reach(file: Path) -> None:
    for host in ("[0::0]", "[::ffff:0.0.0.0]", "0.0.0.0"):
        assert lines(file, GOOD.replace("host-2", host)) == [
            f"group.members.b = {host}:10911 (file member.toml): is an address to listen on; give "
            "the address where others reach this member"
        ]
