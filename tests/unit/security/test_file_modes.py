"""What a member keeps is for its own user alone."""

import os
import stat
from pathlib import Path

from dledger.files import OsFileSystem
from dledger.store.lmdb_store import LmdbStore


def modes(folder: Path) -> dict[str, int]:
    found = {"": folder, **{str(each.relative_to(folder)): each for each in folder.rglob("*")}}
    return {name: stat.S_IMODE(each.stat().st_mode) for name, each in found.items()}


def test_files_and_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        fs, folder = OsFileSystem(), tmp_path / "data"
        fs.make_folder(str(folder))
        fs.open(f"{folder}/segment", create=True).close()
        lock = fs.lock(f"{folder}/lock")
        LmdbStore(f"{folder}/state", 1 << 26).close()
        found = modes(folder)
    finally:
        os.umask(before)
    assert lock is not None
    assert not [name for name, mode in found.items() if mode & 0o077], found
