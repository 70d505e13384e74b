"""The one log of a group: segments, recovery, write rounds, hard state, the data folder."""

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
