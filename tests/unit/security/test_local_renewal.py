"""`dledger up --secure` makes certificates again before they end."""

import datetime as dt
from pathlib import Path

from dledger_broker.local.cluster import LocalCluster
from dledger_broker.security.authority import Authority, Wanted, held, is_due
from dledger_proto.network.tls import client_name, member_name

NOW = dt.datetime.now(dt.UTC)


def certificates(folder: Path) -> dict[str, bytes]:
    return {each.parent.name: each.read_bytes() for each in folder.glob("tls/*/tls.crt")}


def test_a_start_renews_what_has_lived_for_half_of_its_life(tmp_path: Path) -> None:
    """And what lacks a name of the process. The others stay, and so does the authority."""
    LocalCluster(tmp_path, secure=True).prepare()
    authority = Authority.load(tmp_path / "tls")
    for name, names, days_ago in (
        ("n1", [member_name("local", "group-1", "n1")], 250),
        ("n2", [member_name("local", "group-1", "n2")], 100),
        ("n3", [member_name("local", "another", "n3")], 0),
    ):
        begins = NOW - dt.timedelta(days=days_ago)
        hosts = ["localhost", "127.0.0.1"]
        authority.issue(tmp_path / "tls", Wanted(name, names, hosts), begins=begins)
    before, trusted = certificates(tmp_path), (tmp_path / "tls/n1/ca.crt").read_bytes()
    LocalCluster(tmp_path, secure=True).prepare()
    after = certificates(tmp_path)
    assert {name for name in after if after[name] != before[name]} == {"n1", "n3"}
    assert (tmp_path / "tls/n1/ca.crt").read_bytes() == trusted
    assert held(tmp_path / "tls/n3").names == (member_name("local", "group-1", "n3"),)


def test_half_of_the_life_is_exact(tmp_path: Path) -> None:
    wanted = Wanted("app", [client_name("c", "app")])
    assert is_due(tmp_path, wanted, NOW), "it is missing"
    Authority.make("c").issue(tmp_path, wanted, 10, NOW)
    said = held(tmp_path / "app")
    middle = said.starts + (said.ends - said.starts) / 2
    assert not is_due(tmp_path, wanted, middle)
    assert is_due(tmp_path, wanted, middle + dt.timedelta(seconds=1))
    assert is_due(tmp_path, Wanted("app", wanted.names, ["host-1"]), NOW), "it lacks a host"
