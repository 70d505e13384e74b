"""`dledger repair` and `dledger inspect` on a damaged state: told, never the end of the command."""

import json
import os
from pathlib import Path
from random import Random

import lmdb
import pytest

from dledger.files import OsFileSystem
from dledger.state.machine import StateMachine
from dledger.state.tables import PREFIX, Table
from dledger.store import lmdb_check
from dledger.store.lmdb_store import LmdbStore
from dledger.store.sealed import FORMAT_KEY, seal
from dledger.store.store import DamagedStore
from dledger_broker.cli import main
from dledger_offline.folder import read_hard_state, read_identity
from tests.unit.cli.test_inspect_repair import write_everything
from tests.unit.log.support import Member

MAP_SIZE = 1 << 26
FLIPS = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of a stopped member."""
    path = tmp_path / "m1" / "data" / "g1"
    member = Member(OsFileSystem(), str(path))
    store = LmdbStore(str(path / "state"), MAP_SIZE)
    write_everything(member, StateMachine(store, "g1"))
    store.close()
    member.close()
    return path


def data_of(folder: Path) -> Path:
    return folder / "state" / "data.mdb"


def starts(folder: Path) -> bool:
    """Whether a start would take the state."""
    try:
        LmdbStore(str(folder / "state"), MAP_SIZE).close()
    except DamagedStore:
        return False
    return True


def test_repair_says_healthy_just_when_a_start_would_succeed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bit anywhere: both commands end by themselves and agree with the start."""
    sound = data_of(folder).read_bytes()
    random = Random(3)
    outcomes: set[bool] = set()
    for _ in range(FLIPS):
        changed = bytearray(sound)
        place = random.randrange(len(sound) // 4096) * 4096 + random.randrange(32)
        changed[place] ^= 1 << random.randrange(8)
        data_of(folder).write_bytes(changed)
        capsys.readouterr()
        code = main(["repair", str(folder), "--check", "--json"])
        problems = json.loads(capsys.readouterr().out)["problems"]
        shown = main(["inspect", "state", str(folder), "--json"])
        assert data_of(folder).read_bytes() == changed, "neither writes"
        assert shown == code, (place, problems)
        assert starts(folder) == (code == 0), (place, problems)
        assert bool(problems) == bool(code)
        outcomes.add(code == 0)
        data_of(folder).write_bytes(sound)
    assert outcomes == {True, False}


def test_a_row_that_does_not_match_its_seal_is_shown_as_such(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the rows behind it: only its own value is in doubt."""
    sound = data_of(folder).read_bytes()
    at = sound.rindex(b"where")
    changed = bytearray(sound.replace(b"where", b"wherE"))
    assert changed[at : at + 5] == b"wherE"
    data_of(folder).write_bytes(changed)
    capsys.readouterr()
    assert main(["inspect", "state", str(folder), "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (wrong,) = [row for row in rows if "problem" in row]
    assert (wrong["table"], wrong["problem"]) == ("group-offset", "the row does not match its seal")
    assert rows[-1] != wrong
    assert main(["repair", str(folder), "--check", "--json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem.startswith(f"{folder}/state: table 40, key ")


def test_of_a_member_that_writes_meanwhile_nothing_is_called_damage(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages change under the walk: neither a row nor a page that does not fit says anything."""
    sound = data_of(folder).read_bytes()
    monkeypatch.setattr("dledger_broker.cli.offline.inspect.is_running", lambda _: True)
    for damaged in (sound.replace(b"where", b"wherE"), sound[: len(sound) // 2]):
        data_of(folder).write_bytes(damaged)
        capsys.readouterr()
        assert main(["inspect", "state", str(folder), "--json"]) == 1
        error = capsys.readouterr().err
        assert "the running member changed it while it was read; stop the member first" in error
        assert "repair" not in error


def test_a_newer_state_is_not_set_aside(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        lmdb.open(str(folder / "state"), map_size=MAP_SIZE) as environment,
        environment.begin(write=True) as transaction,
    ):
        transaction.put(FORMAT_KEY, seal(FORMAT_KEY, b"DLST\x04\0\0\0"))
    assert main(["repair", str(folder), "--yes"]) == 1
    assert "a newer format is not damage; nothing was changed" in capsys.readouterr().err
    assert folder.exists()


def test_missing_rows_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No page and no row is wrong: the totals are."""
    with (
        lmdb.open(str(folder / "state"), map_size=MAP_SIZE) as environment,
        environment.begin(write=True) as transaction,
        transaction.cursor() as cursor,
    ):
        assert cursor.set_range(PREFIX[Table.GROUP_OFFSET])
        cursor.delete()
    for command in (["repair", "--check"], ["inspect", "state"]):
        capsys.readouterr()
        assert main([*command, str(folder)]) == 1
        printed = capsys.readouterr()
        assert "has the totals of" in printed.out + printed.err


def test_a_state_of_format_1_is_set_aside(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        lmdb.open(str(folder / "state"), map_size=MAP_SIZE) as environment,
        environment.begin(write=True) as transaction,
    ):
        transaction.put(FORMAT_KEY, b"DLST\x01\0\0\0")
    assert main(["repair", str(folder), "--yes"]) == 0
    assert "format version 1, whose rows have no seals" in capsys.readouterr().out
    assert not folder.exists()


def test_what_may_not_be_read_is_no_damage(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither identity, hard state nor state: nothing is set aside, also with --yes."""
    read_bytes = Path.read_bytes
    for name in ("identity", "hard_state"):

        def refuse(path: Path, name: str = name) -> bytes:
            if path.name == name:
                raise PermissionError(13, os.strerror(13), str(path))
            return read_bytes(path)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_bytes", refuse)
            assert (read_identity(folder).refused, read_hard_state(folder).refused) == (
                name == "identity",
                name == "hard_state",
            )
            assert main(["repair", str(folder), "--yes"]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"error: {folder}/{name}: Permission denied; this says nothing")
    verdict = json.dumps({"end": "refused", "errno": 13, "text": "state store: Permission denied"})
    with monkeypatch.context() as patch:
        patch.setattr(
            "dledger_broker.cli.offline.repair.check_store",
            lambda place, whole: lmdb_check.read_verdict(place, 0, verdict.encode(), b""),
        )
        assert main(["repair", str(folder), "--yes"]) == 1
    assert capsys.readouterr().err.startswith("error: state store: Permission denied; this says")
    assert folder.exists()
