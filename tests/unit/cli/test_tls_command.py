"""`dledger tls`: what it makes, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from dledger_broker.cli import main
from dledger_broker.security.authority import Authority, held
from dledger_proto.exit_codes import Exit
from dledger_proto.network.tls import TlsFolder, member_name

HERE = ("localhost", "127.0.0.1", "::1")
MEMBERS = ("--member", "g/a=host-1,127.0.0.1", "--member", "g2/a=host-1", "--member", "b=host-2")


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_one_command_makes_a_whole_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "tls")
    more = ("--group", "g", "--name-server", "ns-1,ns-2", "--client", "app", "--json")
    assert main(["tls", "init", folder, "--cluster", "c", *MEMBERS, *more]) == Exit.OK
    by_name = {Path(row["folder"]).name: row for row in rows(capsys)}
    assert by_name["a"]["names"] == "dledger://c/member/g/a, dledger://c/member/g2/a"
    assert set(by_name["a"]["hosts"].split(", ")) == {"host-1", *HERE}
    assert by_name["b"]["names"] == "dledger://c/member/g/b"
    assert set(by_name["name-server"]["hosts"].split(", ")) == {"ns-1", "ns-2", *HERE}
    assert by_name["client-app"]["hosts"] == ""
    for name in by_name:
        TlsFolder(f"{folder}/{name}")
    assert main(["tls", "show", folder, "--json"]) == Exit.OK
    assert len(rows(capsys)) == 4


def test_a_certificate_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "tls"
    assert main(["tls", "init", str(folder), "--cluster", "c", "--client", "app"]) == Exit.OK
    before = (folder / "client-app" / "tls.crt").read_bytes()
    capsys.readouterr()
    again = ["tls", "issue", str(folder), "--client", "app", "--days", "3", "--json"]
    assert main(again) == Exit.OK
    assert rows(capsys)[0]["days_left"] == 2
    assert (folder / "client-app" / "tls.crt").read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--member", "a=host"], "GROUP/MEMBER=HOST"),
        (["--member", "g/a"], "GROUP/MEMBER=HOST"),
        (["--member", "g/a="], "names no host"),
        (["--member", "g/a=ho st"], "host:port"),
        (["--member", "g/a b=host"], "a b"),
        (["--member", "g/authority=host"], "another folder"),
        (["--client", "a/b"], "a/b"),
        (["--member", "g/client-app=host", "--client", "app"], "another folder"),
        (["--member", "g/a=10.0.0.1:5"], "10.0.0.1:5"),
        (["--name-server", ","], "names no host"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    folder = tmp_path / "tls"
    assert main(["tls", "init", str(folder), "--cluster", "c", *arguments]) == Exit.BAD_INPUT
    assert said in capsys.readouterr().err
    assert not folder.exists()


def test_what_a_certificate_said_is_not_lost_unsaid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a member of two groups, made again for one of them; of a host that is left out."""
    folder = str(tmp_path / "tls")
    assert main(["tls", "init", folder, "--cluster", "c", "--group", "g", *MEMBERS]) == Exit.OK
    before = (tmp_path / "tls" / "a" / "tls.crt").read_bytes()
    for less, lost in (
        (["--member", "g/a=host-1"], "dledger://c/member/g2/a"),
        (["--member", "g/b=host-3"], "host-2"),
    ):
        assert main(["tls", "issue", folder, *less]) == Exit.BAD_INPUT
        assert lost in capsys.readouterr().err
    assert (tmp_path / "tls" / "a" / "tls.crt").read_bytes() == before
    assert main(["tls", "issue", folder, "--group", "g", *MEMBERS]) == Exit.OK


def test_no_certificate_outlives_its_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Authority.make("c", 10).store(tmp_path)
    assert main(["tls", "issue", str(tmp_path), "--client", "app"]) == Exit.BAD_INPUT
    assert "--days: 397" in capsys.readouterr().err
    assert main(["tls", "issue", str(tmp_path), "--client", "app", "--days", "9"]) == Exit.OK


def test_an_authority_is_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tls", "init", str(tmp_path), "--cluster", "c"]) == Exit.OK
    key = (tmp_path / "authority" / "ca.key").read_bytes()
    assert main(["tls", "init", str(tmp_path), "--cluster", "c"]) == Exit.FAILED
    assert "exists" in capsys.readouterr().err
    assert (tmp_path / "authority" / "ca.key").read_bytes() == key


def test_nothing_is_issued_without_an_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tls", "issue", str(tmp_path), "--client", "app"]) == Exit.BAD_INPUT
    assert "dledger tls init" in capsys.readouterr().err
    assert main(["tls", "show", str(tmp_path)]) == Exit.BAD_INPUT


def test_the_proof_of_a_name_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is what the certificates of the command have, and no host may be called so."""
    folder, name = str(tmp_path / "tls"), member_name("c", "g", "a")
    assert main(["tls", "init", folder, "--cluster", "c", "--member", "g/a=host-1"]) == Exit.OK
    capsys.readouterr()
    assert main(["tls", "proof", name, "--json"]) == Exit.OK
    (row,) = rows(capsys)
    assert held(tmp_path / "tls" / "a").proofs == {row["dns"]}
    assert main(["tls", "proof", "a"]) == Exit.BAD_INPUT
    assert "dledger://" in capsys.readouterr().err
    assert main(["tls", "issue", folder, "--member", f"g/b={row['dns']}"]) == Exit.BAD_INPUT
    assert "name.dledger.invalid" in capsys.readouterr().err
