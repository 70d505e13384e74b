"""The one log of a group: segments, recovery, write rounds, hard state, the data folder.

atomic_file  Small files that are replaced as a whole: identity, hard state, checkpoint
checkpoint   The checkpoint file: what a restart needs, so that it reads no old segment
commit_log   The commit log of one group on one member: append, cut, read
errors       What can be wrong with a data folder or a log
folder       The data folder of one member: its lock, its identity
hard_state   Term, vote and what else a member must never forget: the hard state file
identity     Whose data a folder holds: cluster, group, member, incarnation
settings     What a log is told by configuration
space        Disk space: a reserve that is kept, and the mark below which writes are refused
memory/      The log in memory: chain, segments, newest entries, what is written and synced
reading/     Reading old log bytes from any thread, while the loop appends, cuts and trims
recovery/    Recovering the log after a start: what lies on the disk, and what is done with it
writing/     Writing the log: what is in memory, and how a write round makes it durable
"""

from dledger.log.commit_log import CommitLog
from dledger.log.errors import (
    DamagedFile,
    DamagedHardState,
    DamagedIdentity,
    DamagedLog,
    FolderInUse,
    LogFailed,
    SpanGone,
    WrongFolder,
)
from dledger.log.folder import DataFolder
from dledger.log.hard_state import HardState
from dledger.log.identity import Identity
from dledger.log.settings import LogSettings
from dledger.log.writing.write_round import Round

__all__ = [
    "CommitLog",
    "DamagedFile",
    "DamagedHardState",
    "DamagedIdentity",
    "DamagedLog",
    "DataFolder",
    "FolderInUse",
    "HardState",
    "Identity",
    "LogFailed",
    "LogSettings",
    "Round",
    "SpanGone",
    "WrongFolder",
]
