"""The files of a process for TLS: what they must hold, and when changed ones are taken."""

import datetime as dt
import os
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dledger_broker.security.authority import Authority, Wanted, held
from dledger_proto.network.tls import (
    LOOK_SECONDS,
    TlsError,
    TlsFolder,
    client_name,
    is_member_of,
    member_name,
    names_in,
    names_of_caller,
)
from dledger_proto.network.tls_files import FILES

NAME = client_name("c", "app")


def made(folder: Path, authority: Authority | None = None) -> Path:
    return (authority or Authority.make("c")).issue(folder, Wanted("app", [NAME], ["localhost"]))


def test_a_certificate_says_what_it_was_made_for(tmp_path: Path) -> None:
    names = [member_name("c", "g", "a"), member_name("c", "room@g2", "a")]
    hosts = ["host-1", "10.0.0.1", "::1"]
    begins = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    folder = Authority.make("c").issue(tmp_path, Wanted("a", names, hosts), 7, begins)
    said = held(folder)
    assert (list(said.names), sorted(said.hosts)) == (names, sorted(hosts))
    assert said.ends == begins + dt.timedelta(days=7)
    assert said.starts < begins


def test_only_the_owner_can_read_keys(tmp_path: Path) -> None:
    authority = Authority.make("c")
    authority.store(tmp_path)
    folder = made(tmp_path, authority)
    for secret in (folder / "tls.key", tmp_path / "authority" / "ca.key"):
        assert secret.stat().st_mode & 0o777 == 0o600
    for each in (folder, tmp_path / "authority"):
        assert each.stat().st_mode & 0o777 == 0o700


def test_an_authority_is_read_again(tmp_path: Path) -> None:
    Authority.make("shop").store(tmp_path)
    again = Authority.load(tmp_path)
    assert again.cluster == "shop"
    TlsFolder(str(made(tmp_path, again)))
    (tmp_path / "authority" / "ca.key").write_bytes(b"no key")
    with pytest.raises(TlsError, match="no authority"):
        Authority.load(tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_what_is_missing_or_damaged_is_named(tmp_path: Path, name: str) -> None:
    folder = made(tmp_path)
    whole = (folder / name).read_bytes()
    for wrong in (b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", None):
        if wrong is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(wrong)
        with pytest.raises(TlsError, match=name.replace(".", r"\.")):
            TlsFolder(str(folder))
    (folder / name).write_bytes(b"x" * (1 << 21))
    with pytest.raises(TlsError, match="larger than"):
        TlsFolder(str(folder))
    (folder / name).write_bytes(whole)
    assert TlsFolder(str(folder)).current().version == 1


def test_an_encrypted_key_is_refused_without_a_question(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    folder = made(tmp_path)
    key = load_pem_private_key((folder / "tls.key").read_bytes(), None)
    sealed = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    (folder / "tls.key").write_bytes(sealed)
    with pytest.raises(TlsError, match="encrypted"):
        TlsFolder(str(folder))


def test_changed_files_are_taken_when_they_fit_together() -> None:
    """Halfway through a change the earlier files are used on, and the problem is told once."""
    with TemporaryDirectory() as folder:
        changed_files(Path(folder))


def changed_files(root: Path) -> None:
    authority = Authority.make("c")
    folder = made(root / "1", authority)
    newer = made(root / "2", authority)
    problems: list[str] = []
    now = [0.0]
    tls = TlsFolder(str(folder), problems.append, lambda: now[0])
    first = tls.current()
    (folder / "tls.key").write_bytes((newer / "tls.key").read_bytes())
    assert tls.current() is first, "not before its time"
    for _ in range(3):
        now[0] += LOOK_SECONDS
        assert tls.current() is first
    assert len(problems) == 1
    (folder / "tls.crt").write_bytes((newer / "tls.crt").read_bytes())
    now[0] += LOOK_SECONDS
    second = tls.current()
    assert second.version == first.version + 1
    assert second.certificate == (newer / "tls.crt").read_bytes()
    assert isinstance(second.dialling, ssl.SSLContext)
    for name in FILES:  # touched, or copied once more: nothing has changed
        os.utime(folder / name, ns=(1, 1))
        now[0] += LOOK_SECONDS
        assert tls.current() is second
    (folder / "ca.crt").unlink()
    now[0] += LOOK_SECONDS
    assert tls.current() is second
    assert len(problems) == 2


def test_names_are_those_of_certificates_alone() -> None:
    certificate = {
        "subjectAltName": (("DNS", "dledger://c/member/g/a"), ("URI", NAME), ("URI", "http://x"))
    }
    assert names_in(certificate) == {NAME}
    assert names_in(None) == frozenset()
    assert names_of_caller({"peer_uri": [NAME.encode(), b"\xff"]}) == {NAME}
    assert names_of_caller({}) == frozenset()


def test_a_member_is_one_of_this_cluster() -> None:
    assert is_member_of(frozenset({member_name("c", "g", "a")}), "c")
    assert not is_member_of(frozenset({member_name("c2", "g", "a"), NAME}), "c")
