"""Puts a complete refill in place of a member's data, before the member opens it.

Owns the order of the steps. Each step may be repeated, so a member that is killed in between goes
on at its next start. Until the end the marks in `refill/` say where it is:

    complete   the hard state learns the term, then the own log is removed: it makes room
    emptied    the state is replaced row by row, the staged log gets its names in the own folder,
               then checkpoint and identity follow

Never touched: the lives that this member has recorded, its vote in a term that the staged log does
not pass, and its quarantine. A member without any data of its own ends up in quarantine (D18).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dledger.log.atomic_file import read_file, replace_file
from dledger.log.checkpoint import CHECKPOINT_FILE, parse_checkpoint
from dledger.log.errors import DamagedFile
from dledger.log.folder import LOG_FOLDER, DataFolder
from dledger.log.hard_state import store_hard_state
from dledger.refill.staging import (
    COMPLETE_FILE,
    EMPTIED_FILE,
    REFILL_FOLDER,
    STATE_FILE,
    is_of_this_life,
    remove_folder,
)
from dledger.refill.state_dump import read_dump
from dledger.store.sealed import FORMAT_KEY, TOTALS_KEY
from dledger.store.store import StateStore
from dledger.types import Term
from dledger_proto.limits import MIB

SAVE_BYTES: Final = 8 * MIB
"""Rows are saved in steps of about this size."""
PAGE_ROWS: Final = 1_000


def install(folder: DataFolder, open_store: Callable[[], StateStore]) -> str:
    """Install a refill that is complete; return a line about it, nothing when there is none.

    DamagedFile, OSError as when a data folder is opened.
    """
    fs, path = folder.fs, f"{folder.path}/{REFILL_FOLDER}"
    complete, emptied = f"{path}/{COMPLETE_FILE}", f"{path}/{EMPTIED_FILE}"
    if not (fs.exists(complete) or fs.exists(emptied)):
        return ""
    if not is_of_this_life(fs, path, folder.identity):
        for mark in (complete, emptied):
            if fs.exists(mark):
                fs.unlink(mark)
                fs.sync_folder(path)
        remove_folder(fs, path)
        return ""
    content = read_file(fs, f"{path}/{CHECKPOINT_FILE}")
    if content is None:
        raise DamagedFile(f"{path}/{CHECKPOINT_FILE}", "the file of a complete refill is missing")
    checkpoint = parse_checkpoint(content)
    if fs.exists(complete):
        _note_term(folder, checkpoint.end.term)
        for name in fs.names(folder.log_path):
            fs.unlink(f"{folder.log_path}/{name}")
        fs.sync_folder(folder.log_path)
        fs.rename(complete, emptied)
        fs.sync_folder(path)
    _replace_state(folder, open_store)
    staged = f"{path}/{LOG_FOLDER}"
    there = set(fs.names(folder.log_path))
    for name in fs.names(staged):
        if name not in there:
            fs.link(f"{staged}/{name}", f"{folder.log_path}/{name}")
    fs.sync_folder(folder.log_path)
    replace_file(fs, folder.path, folder.checkpoint_path, content)
    folder.identity = replace(folder.identity, group_id=checkpoint.group_id)
    replace_file(fs, folder.path, folder.identity_path, folder.identity.encode())
    # A staged log that still shared files with the own one could be gone on with.
    for name in fs.names(staged):
        fs.unlink(f"{staged}/{name}")
    fs.sync_folder(staged)
    fs.unlink(emptied)
    fs.sync_folder(path)
    remove_folder(fs, path)
    end = checkpoint.end
    return f"refilled with the entries {checkpoint.first_index} to {end.index} of its group"


def _note_term(folder: DataFolder, term: Term) -> None:
    """Let the hard state know the newest term of the log to come."""
    state = folder.load_hard_state()
    new = state
    if term > state.term:
        new = replace(new, term=term, vote=None)
    if not folder.identity.group_id:
        new = replace(new, quarantined=True)
    if new != state:
        store_hard_state(folder.fs, folder.path, new)


def _replace_state(folder: DataFolder, open_store: Callable[[], StateStore]) -> None:
    """Make the saved state that of the dump."""
    store = open_store()
    try:
        start = b"\0"
        while rows := store.scan(start, TOTALS_KEY, PAGE_ROWS):
            for key, _ in rows:
                if key != FORMAT_KEY:
                    store.delete(key)
            store.save()
            start = rows[-1][0] + b"\0"
        for key, value in read_dump(folder.fs, f"{folder.path}/{REFILL_FOLDER}/{STATE_FILE}"):
            store.put(key, value)
            if store.unsaved_bytes >= SAVE_BYTES:
                store.save()
        store.save()
    finally:
        store.close()
