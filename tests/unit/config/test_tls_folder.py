"""`tls.folder`: where it is looked for, and when there is no TLS."""

from pathlib import Path

import pytest

from dledger_broker.config.load import load_config
from dledger_proto.network.tls_files import FOLDER_VARIABLE

FILE = """
cluster = "c"
member = "a"
listen = "127.0.0.1:10911"
folder = "data"
group = "g"
members = { a = "127.0.0.1:10911" }
"""


def folder_of(path: Path, tls: str, environment: dict[str, str]) -> Path | None:
    (path / "member.toml").write_text(FILE + tls)
    tls_config = load_config(path / "member.toml", environment).config.tls
    return tls_config.folder if tls_config.is_on else None


def test_a_folder_of_the_file_is_beside_the_file(tmp_path: Path) -> None:
    assert folder_of(tmp_path, '[tls]\nfolder = "tls"', {}) == tmp_path / "tls"
    assert folder_of(tmp_path, '[tls]\nfolder = "."', {}) == tmp_path


def test_a_folder_of_the_environment_is_where_the_process_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the place itself: a dot must not mean that there is no TLS."""
    monkeypatch.chdir(tmp_path)
    assert folder_of(tmp_path, "", {FOLDER_VARIABLE: "."}) == tmp_path
    assert folder_of(tmp_path, "", {FOLDER_VARIABLE: "tls"}) == tmp_path / "tls"


def test_the_environment_alone_may_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {
        "DLEDGER_CLUSTER": "c",
        "DLEDGER_MEMBER": "a",
        "DLEDGER_LISTEN": "127.0.0.1:10911",
        "DLEDGER_FOLDER": "data",
        "DLEDGER_GROUP": "g",
        "DLEDGER_MEMBERS": "a=127.0.0.1:10911",
        FOLDER_VARIABLE: ".",
    }
    assert load_config(None, environment).config.tls.folder == tmp_path


def test_an_empty_folder_is_no_tls(tmp_path: Path) -> None:
    assert folder_of(tmp_path, '[tls]\nfolder = ""', {FOLDER_VARIABLE: ""}) is None
    assert folder_of(tmp_path, "", {}) is None
