"""The data folder of one member: its lock, its identity, and the paths of everything in it.

Owns: making a folder, opening it for one process, refusing one that belongs to someone else.

    LOCK            held by the process that uses the folder
    identity        whose data this is; written last when a folder is made, so a folder with an
                    identity has a hard state and a checkpoint, or has lost them
    hard_state      term, vote, incarnations
    checkpoint      how far the log is synced, and what a restart needs
    reserve         space kept for when the disk is full
    log/            segments, and the indexes of sealed ones
    state/          the state store's
"""

from random import Random
from typing import Final

from dledger.files import FileSystem
from dledger.log.atomic_file import CorruptFile, read_file, replace_file
from dledger.log.checkpoint import CHECKPOINT_FILE, Checkpoint
from dledger.log.errors import DamagedIdentity, FolderInUse, WrongFolder, refusal_of
from dledger.log.hard_state import HardState, hard_state_path, load_hard_state, store_hard_state
from dledger.log.identity import INCARNATION_SIZE, Identity, parse_identity
from dledger.types import MemberId
from dledger_proto.entry import parse_segment_name

IDENTITY_FILE: Final = "identity"
LOCK_FILE: Final = "LOCK"
LOG_FOLDER: Final = "log"
STATE_FOLDER: Final = "state"


class DataFolder:
    """An open data folder. One process at a time; `close` ends that."""

    def __init__(self, fs: FileSystem, path: str, identity: Identity, lock: object) -> None:
        self.fs = fs
        self.path = path
        self.identity = identity
        """As on disk; the log puts a new one here when the group id has become durable."""
        self._lock: object | None = lock

    @classmethod
    def open(
        cls, fs: FileSystem, path: str, cluster: str, group: str, member: MemberId, random: Random
    ) -> "DataFolder":
        """Lock the folder and read its identity, or make both.

        `FolderInUse`: another process has it. `WrongFolder`: it belongs to another cluster, group
        or member. `DamagedIdentity`: it holds a log but no readable identity.
        """
        path = path.rstrip("/") or "/"
        make_durable_folder(fs, path)
        try:
            lock = fs.lock(f"{path}/{LOCK_FILE}")
        except BlockingIOError as error:
            raise FolderInUse(path) from error
        try:
            identity = _identify(fs, path, cluster, group, member, random)
        except BaseException:
            lock = None  # or the traceback would hold it
            raise
        return cls(fs, path, identity, lock)

    @property
    def log_path(self) -> str:
        """Where the segments lie."""
        return f"{self.path}/{LOG_FOLDER}"

    @property
    def state_path(self) -> str:
        """Where the state store keeps its files."""
        return f"{self.path}/{STATE_FOLDER}"

    @property
    def checkpoint_path(self) -> str:
        """The checkpoint file."""
        return f"{self.path}/{CHECKPOINT_FILE}"

    @property
    def identity_path(self) -> str:
        """The identity file."""
        return f"{self.path}/{IDENTITY_FILE}"

    @property
    def hard_state_path(self) -> str:
        """The hard state file."""
        return hard_state_path(self.path)

    def load_hard_state(self) -> HardState:
        """Return what is on disk; DamagedHardState when that cannot be known."""
        return load_hard_state(self.fs, self.path)

    def close(self) -> None:
        """Give the folder free for another process."""
        self._lock = None


def _identify(
    fs: FileSystem, path: str, cluster: str, group: str, member: MemberId, random: Random
) -> Identity:
    """Return the identity of a locked folder, a new one when the folder is new."""
    for name in (LOG_FOLDER, STATE_FOLDER):
        fs.make_folder(f"{path}/{name}")
    # A file that an earlier process renamed into place counts only once its name is durable.
    fs.sync_folder(path)
    fs.sync_folder(f"{path}/{LOG_FOLDER}")
    identity = _read_identity(fs, path)
    if identity is None:
        identity = Identity(cluster, group, member, random.randbytes(INCARNATION_SIZE))
        _make_contents(fs, path, identity)
    elif (identity.cluster, identity.group, identity.member) != (cluster, group, member):
        raise WrongFolder(
            f"data folder {path} belongs to member {identity.member!r} of group "
            f"{identity.group!r} in cluster {identity.cluster!r}; this is member {member!r} "
            f"of group {group!r} in cluster {cluster!r}"
        )
    return identity


def make_durable_folder(fs: FileSystem, path: str) -> None:
    """Make a folder and the missing ones above it, and make all their names durable."""
    if fs.exists(path):
        return
    parent = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    if parent != path:
        make_durable_folder(fs, parent)
    fs.make_folder(path)
    fs.sync_folder(parent)


def _read_identity(fs: FileSystem, path: str) -> Identity | None:
    """Return the folder's identity; None for a folder that was never finished."""
    file = f"{path}/{IDENTITY_FILE}"
    try:
        content = read_file(fs, file)
        if content is not None:
            return parse_identity(content)
    except CorruptFile as error:
        raise refusal_of(DamagedIdentity, file, error) from error
    segments = [n for n in fs.names(f"{path}/{LOG_FOLDER}") if parse_segment_name(n) is not None]
    if segments:
        raise DamagedIdentity(
            file, f"the file is missing, but the folder {path} holds the segment {segments[0]}"
        )
    return None


def _make_contents(fs: FileSystem, path: str, identity: Identity) -> None:
    """Write what every folder has, the identity last: only then does the folder count as made."""
    store_hard_state(fs, path, HardState())
    replace_file(fs, path, f"{path}/{CHECKPOINT_FILE}", Checkpoint().encode())
    replace_file(fs, path, f"{path}/{IDENTITY_FILE}", identity.encode())
