"""A new cluster, made of a snapshot: the data folders of all members of one group.

Owns: what these folders hold, and why no member of the old cluster can be mistaken for one of them.

All members begin with the same log and the same state. Their lives are drawn now, for all of them
at once, and each knows those of the others. The cluster has another name than the old one, and
members of different clusters refuse each other. So the new members have given no vote and no
acknowledgement to anybody. A folder that was restored another time belongs to another life.
"""

from pathlib import Path
from random import Random
from typing import Final

from dledger.files import FileSystem
from dledger.log.atomic_file import CorruptFile, read_file, replace_file
from dledger.log.checkpoint import CHECKPOINT_FILE, parse_checkpoint
from dledger.log.folder import IDENTITY_FILE, STATE_FOLDER
from dledger.log.hard_state import HardState, store_hard_state
from dledger.log.identity import INCARNATION_SIZE, Identity
from dledger.snapshot.making import COPY_BYTES, files_in, make_folder
from dledger.snapshot.manifest import MANIFEST_FILE, Manifest, read_manifest
from dledger.state.saved import SavedState
from dledger.types import MemberId, Term

MEMBERS_OWN: Final = (MANIFEST_FILE, IDENTITY_FILE, CHECKPOINT_FILE)
"""Files of a snapshot that are not copied as they are, or last."""


class NoSnapshot(Exception):
    """The folder holds no whole snapshot; the text says why."""


def manifest_of(fs: FileSystem, snapshot: str) -> Manifest:
    """Return what a snapshot is of; NoSnapshot."""
    try:
        manifest = read_manifest(fs, snapshot)
    except CorruptFile as error:
        raise NoSnapshot(str(error)) from error
    if manifest is None:
        raise NoSnapshot(f"{snapshot} holds no {MANIFEST_FILE}: it is no snapshot, or not whole")
    return manifest


def restore_to(
    fs: FileSystem, snapshot: str, cluster: str, folders: dict[MemberId, str], random: Random
) -> None:
    """Make the data folder of each member; none of them may exist. Blocks; OSError, NoSnapshot.

    A folder counts as a member's only with its identity, which is written last.
    """
    manifest = manifest_of(fs, snapshot)
    assert set(folders) == set(manifest.members), f"{folders} for {manifest.members}"
    assert cluster != manifest.cluster, "members of the old cluster would be taken for new ones"
    content = read_file(fs, f"{snapshot}/{CHECKPOINT_FILE}")
    if content is None:
        raise NoSnapshot(f"{snapshot}/{CHECKPOINT_FILE} is missing")
    try:
        checkpoint = parse_checkpoint(content)
    except CorruptFile as error:
        raise NoSnapshot(f"{snapshot}/{CHECKPOINT_FILE}: {error}") from error
    with SavedState(f"{snapshot}/{STATE_FOLDER}") as state:
        applied = state.applied
    if (applied.index, applied.term) != (manifest.last_index, manifest.term):
        raise NoSnapshot(
            f"{snapshot}: the state has applied entry {applied.index} of term {applied.term}, "
            f"{MANIFEST_FILE} says {manifest.last_index} of term {manifest.term}"
        )
    lives = {member: random.randbytes(INCARNATION_SIZE) for member in sorted(folders)}
    for member, folder in folders.items():
        make_folder(fs, folder)
        for path in files_in(fs, snapshot):
            name = path.removeprefix(f"{snapshot}/")
            if name not in MEMBERS_OWN:
                _copy(fs, path, f"{folder}/{name}")
        for inner in {str(Path(path).parent) for path in files_in(fs, folder)}:
            fs.sync_folder(inner)
        hard_state = HardState(Term(applied.term), incarnations=lives)
        store_hard_state(fs, folder, hard_state)
        replace_file(fs, folder, f"{folder}/{CHECKPOINT_FILE}", content)
        identity = Identity(cluster, manifest.group, member, lives[member], checkpoint.group_id)
        replace_file(fs, folder, f"{folder}/{IDENTITY_FILE}", identity.encode())


def _copy(fs: FileSystem, source: str, target: str) -> None:
    read, write = fs.open(source), fs.open(target, create=True)
    try:
        at = 0
        while piece := read.pread(COPY_BYTES, at):
            write.pwritev([piece], at)
            at += len(piece)
        write.fdatasync()
    finally:
        read.close()
        write.close()
