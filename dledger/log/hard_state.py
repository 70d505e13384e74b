"""Term, vote and what else a member must never forget: the hard state file.

Owns: its contents, `DLH1` version 1 in the frame of `atomic_file.py`:
u64 term, u64 flags (bit 0 voted, bit 1 quarantined, bit 2 lifted), blob vote, u64 count, then per
member blob id and blob incarnation (16).

A missing or damaged file is `DamagedHardState`, never "term 0, no vote" (F11): the file is written
before the identity file when a folder is made, so a folder that exists has one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dledger.files import FileSystem
from dledger.log.atomic_file import (
    CorruptFile,
    FieldReader,
    FieldWriter,
    frame,
    read_file,
    replace_file,
    unframe,
)
from dledger.log.errors import DamagedHardState, refusal_of
from dledger.log.memory.chain import NO_TERM
from dledger.types import MemberId, Term

HARD_STATE_FILE: Final = "hard_state"
_MAGIC: Final = b"DLH1"
_VERSION: Final = 1
_VOTED = 1
_QUARANTINED = 2
_LIFTED = 4


@dataclass(frozen=True, slots=True)
class HardState:
    """What is on disk before a vote, a term or an incarnation is told to anyone (I5, D18)."""

    term: Term = NO_TERM
    vote: str | None = None
    """Whom this member voted for in `term`; None: nobody yet."""
    incarnations: Mapping[MemberId, bytes] = field(default_factory=dict[MemberId, bytes])
    """The life of every member (16 bytes each) as this member has durably recorded it."""
    quarantined: bool = False
    lifted: bool = False
    """An operator ended the quarantine, naming the risk."""

    def encode(self) -> bytes:
        """Return the file's bytes: equal states give equal bytes."""
        writer = FieldWriter()
        flags = _VOTED if self.vote is not None else 0
        flags |= _QUARANTINED if self.quarantined else 0
        flags |= _LIFTED if self.lifted else 0
        writer.numbers(self.term, flags)
        writer.blob((self.vote or "").encode())
        writer.numbers(len(self.incarnations))
        for member, incarnation in sorted(self.incarnations.items()):
            writer.blob(member.encode())
            writer.blob(bytes(incarnation))
        return frame(_MAGIC, _VERSION, writer.body())


def parse_hard_state(content: bytes) -> HardState:
    """Return what a hard state file says; CorruptFile when it is none."""
    reader = FieldReader(unframe(_MAGIC, _VERSION, content))
    term, flags = reader.numbers(2)
    vote = reader.text()
    if flags >= 8:
        raise CorruptFile(f"flags {flags:#x} are not known")
    incarnations = {MemberId(reader.text()): reader.blob() for _ in range(reader.number())}
    reader.end()
    return HardState(
        term=Term(term),
        vote=vote if flags & _VOTED else None,
        incarnations=incarnations,
        quarantined=bool(flags & _QUARANTINED),
        lifted=bool(flags & _LIFTED),
    )


def hard_state_path(folder: str) -> str:
    """Return the path of the hard state file of a data folder."""
    return f"{folder}/{HARD_STATE_FILE}"


def load_hard_state(fs: FileSystem, folder: str) -> HardState:
    """Return the hard state of an existing data folder; DamagedHardState when it has none."""
    path = hard_state_path(folder)
    try:
        content = read_file(fs, path)
        if content is None:
            raise DamagedHardState(
                path, "the file is missing, so term and vote of this member are not known"
            )
        return parse_hard_state(content)
    except CorruptFile as error:
        raise refusal_of(DamagedHardState, path, error) from error


def store_hard_state(fs: FileSystem, folder: str, state: HardState) -> None:
    """Write the hard state durably and atomically. While a log is open, its rounds do this."""
    replace_file(fs, folder, hard_state_path(folder), state.encode())
