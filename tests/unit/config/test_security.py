"""A member that other machines may reach starts with TLS, or when somebody wrote that it may not.

Every refusal names the field, the value and both remedies.
"""

from pathlib import Path

import pytest

from dledger_broker.config.checks import ConfigError, unprotected
from dledger_broker.config.load import load_config
from dledger_broker.config.model import MemberConfig

LOOPBACK = """
cluster = "c"
member = "a"
listen = "127.0.0.1:10911"
folder = "data"
group = "g"
members = { a = "127.0.0.1:10911", b = "127.0.0.1:10921" }
"""
REMEDIES = 'set tls.folder, or write security = "off"'
NUMBERS = {"log1.example": ["10.0.0.1"], "here": ["127.0.1.1"]}


def refused(path: Path, text: str, **environment: str) -> list[str]:
    """What is wrong with a file, one line for each problem; nothing: the member would start."""
    (path / "m.toml").write_text(text)
    try:
        load_config(path / "m.toml", environment, lambda host: NUMBERS.get(host, []))
    except ConfigError as error:
        return [problem.describe() for problem in error.problems]
    return []


def listening(address: str, more: str = "") -> str:
    return more + LOOPBACK.replace('listen = "127.0.0.1:10911"', f'listen = "{address}"')


def advertised(address: str, more: str = "") -> str:
    return more + LOOPBACK.replace('a = "127.0.0.1:10911"', f'a = "{address}"')


@pytest.mark.parametrize("address", ["127.0.0.1:10911", "[::1]:10911", "here:10911"])
def test_what_only_this_machine_reaches_needs_nothing(tmp_path: Path, address: str) -> None:
    assert refused(tmp_path, listening(address)) == []


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("0.0.0.0:10911", ""),
        ("[::]:10911", ""),
        ("10.0.0.1:10911", ""),
        ("log1.example:10911", ": it is 10.0.0.1"),
        ("unknown.example:10911", ": nobody here knows its number"),
    ],
)
def test_to_listen_for_others_needs_tls_or_a_word(tmp_path: Path, address: str, why: str) -> None:
    assert refused(tmp_path, listening(address)) == [
        f"listen = {address} (file m.toml): other machines may reach it{why}; {REMEDIES}"
    ]
    assert refused(tmp_path, listening(address, 'security = "off"\n')) == []
    assert refused(tmp_path, listening(address), DLEDGER_SECURITY="off") == []
    assert refused(tmp_path, listening(address, 'tls.folder = "tls"\n')) == []
    assert refused(tmp_path, listening(address), DLEDGER_TLS_FOLDER="/tls") == []


def test_each_own_address_counts() -> None:
    """Of a member whose addresses are all its own machine's but one."""
    here, there = "127.0.0.1:10911", "10.0.0.1:10912"
    own: dict[str, str] = {"listen": here, "link_listen": "127.0.0.1:10912"}
    tables = {"members": here, "clients": here, "links": "127.0.0.1:10912"}

    def exposed(key: str) -> list[str]:
        group = {"name": "g"} | {
            name: {"a": there if name == key else address} for name, address in tables.items()
        }
        listens = {name: there if name == key else address for name, address in own.items()}
        config = MemberConfig.model_validate(
            {"cluster": "c", "member": "a", "folder": "/d", **listens, "groups": [group]}
        )
        return [problem.key for problem in unprotected(config, lambda _: [])]

    assert exposed("none") == []
    for key in ("link_listen", "members", "clients", "links"):
        assert exposed(key) == [f"group.{key}.a" if key in tables else key]
    own["listen"] = "0.0.0.0:10911"
    assert exposed("none") == ["listen"]


def test_where_links_are_taken_counts(tmp_path: Path) -> None:
    assert refused(tmp_path, 'link_listen = "[::]:10912"\n' + LOOPBACK) == [
        f"link_listen = [::]:10912 (file m.toml): other machines may reach it; {REMEDIES}"
    ]


def test_what_others_are_told_counts(tmp_path: Path) -> None:
    """A port may be forwarded to one on which only this machine is heard."""
    why = f"other machines may reach it: it is 10.0.0.1; {REMEDIES}"
    assert refused(tmp_path, advertised("log1.example:10911")) == [
        f"group.members.a = log1.example:10911 (file m.toml): {why}"
    ]
    for table in ("clients", "links"):
        more = f'\n[{table}]\na = "log1.example:10912"\nb = "127.0.0.1:10922"\n'
        assert refused(tmp_path, LOOPBACK + more) == [
            f"group.{table}.a = log1.example:10912 (file m.toml): {why}"
        ]


def test_where_other_members_are_says_nothing_of_this_one(tmp_path: Path) -> None:
    elsewhere = LOOPBACK.replace('b = "127.0.0.1:10921"', 'b = "10.0.0.2:10911"')
    assert refused(tmp_path, elsewhere) == []


def test_each_group_of_a_process_counts(tmp_path: Path) -> None:
    text = """
cluster = "c"
member = "a"
listen = "127.0.0.1:10911"
folder = "data"
groups = [
  { name = "g", members = { a = "127.0.0.1:10911" } },
  { name = "h", member = "x", members = { x = "10.0.0.1:10911" } },
]
"""
    assert refused(tmp_path, text) == [
        f"group h.members.x = 10.0.0.1:10911: other machines may reach it; {REMEDIES}"
    ]


def test_off_and_tls_contradict_each_other(tmp_path: Path) -> None:
    assert refused(tmp_path, 'security = "off"\ntls.folder = "/tls"\n' + LOOPBACK) == [
        "security = off (file m.toml): contradicts tls.folder = /tls; leave one of the two out"
    ]
    assert refused(tmp_path, 'security = "off"\n' + LOOPBACK, DLEDGER_SECURITY="auto") == []


def test_other_words_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, 'security = "on"\n' + LOOPBACK) == [
        "security = on (file m.toml): must be 'auto' or 'off'"
    ]
