"""What recovery does with what it finds, as three tables. Pure data and a look-up.

Owns: the decisions. Does not own how the facts are found (`recover.py`). Each row says which facts
it is for (a fact that is not named may have any value), what is done, and why that loses nothing
that was acknowledged. Exactly one row of a table fits each combination of facts: a test proves it,
and the look-up asserts it. Labels appear behind the sentence of a `DamagedLog`, in notes and tests.

Write rounds keep these promises (`writing/rounds.py`), and the tables lean on them:
- the checkpoint never claims more than is synced, and is lowered before a suffix is cut;
- a file is sealed (exact size, synced) before the next file's name exists;
- a file's header is synced, and its name too, before its first entry is written;
- a suffix is cut durably before anything is written behind the cut;
- the head moves in the checkpoint before old files are removed, oldest first.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final


class Action(enum.Enum):
    """What recovery does."""

    START_EMPTY = "start with an empty log"
    RECOVER = "look at the files"
    USE = "use the file"
    REMOVE = "remove the file"
    KEEP = "the log ends here"
    CUT = "cut what lies behind, durably, before anything is appended"
    REFUSE = "refuse to start, naming file and position"


class FoundCheckpoint(enum.Enum):
    """What lies in the place of the checkpoint file."""

    MISSING = "missing"
    DAMAGED = "damaged"
    EMPTY = "of an empty log"
    COVERS = "of a log with entries"


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """A data folder with a sound identity."""

    checkpoint: FoundCheckpoint
    segments: bool
    """There are segment files."""
    formed: bool
    """The identity has a group id: it gets one when the first entry is durable, and loses it
    before the log is cut to nothing."""


class Place(enum.Enum):
    """Where a segment file lies, as the checkpoint knows it."""

    TRIMMED = "before the head"
    COVERED = "listed in the checkpoint"
    LATER = "behind the last one listed"
    STRAY = "between those listed"


class FoundHeader(enum.Enum):
    """What the first 128 bytes of a segment file are."""

    SOUND = "sound"
    FOREIGN = "sound, but of another place or group"
    BAD = "torn or damaged"
    MISSING = "the file is missing"


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One segment file that is there, or that the checkpoint lists."""

    place: Place
    header: FoundHeader
    last: bool
    """No file lies behind it."""
    written: bool
    """A byte behind the header is not zero."""


class Ending(enum.Enum):
    """Why no further entry could be read."""

    NOTHING = "only zeros, or the end of the file"
    TORN = "bytes that are no sound entry"
    STALE = "a sound entry that does not follow the one before"


@dataclass(frozen=True, slots=True)
class TailFacts:
    """The place at which reading forward from the checkpoint stopped."""

    ending: Ending
    last: bool
    """It lies in the last file."""
    synced: bool
    """The checkpoint, the name of a later file, or a later entry's stamp says it was synced."""


@dataclass(frozen=True, slots=True)
class Row:
    """One decision."""

    label: str
    facts: Mapping[str, object]
    action: Action
    why: str
    says: str = ""
    """Of a refusal: what the user reads behind the file's name; with {position} and {found}."""


FOLDER_ROWS: Final[Sequence[Row]] = (
    Row("F1", {"checkpoint": FoundCheckpoint.MISSING}, Action.REFUSE,
        "The checkpoint is made with the folder, before any entry, and only replaced by rename. "
        "When it is missing, files were lost. Recovery could read entries from the first file on, "
        "but would not know how far the log was synced, nor whether its newest files are there. An "
        "acknowledged suffix could be missing without a trace, and this member would vote.",
        says="the file is missing. It is made together with the data folder, so files were "
        "removed from the folder"),
    Row("F2", {"checkpoint": FoundCheckpoint.DAMAGED}, Action.REFUSE,
        "The file is synced before it is renamed into place, so it is never torn by a power cut: "
        "this is damage, and how far the log was synced is not known, as in F1.",
        says="the file cannot be read: {found}. dledger replaces this file only as a whole, so "
        "a power cut does not cause this"),
    Row("F3", {"checkpoint": FoundCheckpoint.EMPTY, "segments": False, "formed": False},
        Action.START_EMPTY,
        "Nothing was synced yet, or all of it was cut durably."),
    Row("F4", {"checkpoint": FoundCheckpoint.EMPTY, "segments": True}, Action.RECOVER,
        "Entries were written since the folder was made, before the first checkpoint; or a cut of "
        "the whole log had not reached the files."),
    Row("F5", {"checkpoint": FoundCheckpoint.COVERS, "segments": False}, Action.REFUSE,
        "Synced entries existed and their files are gone.",
        says="the checkpoint says that the log reaches position {position}, but the folder "
        "has no segment file"),
    Row("F6", {"checkpoint": FoundCheckpoint.COVERS, "segments": True}, Action.RECOVER,
        "The ordinary start: the head of the files is checked, the entries behind the checkpoint "
        "are read."),
    Row("F7", {"checkpoint": FoundCheckpoint.EMPTY, "segments": False, "formed": True},
        Action.REFUSE,
        "The identity proves that the first entry was durable, and no file holds it. The same is "
        "true when the files that exist hold no entry.",
        says="the identity file says that this member has entries of its group, but no "
        "segment file holds one"),
)  # fmt: skip

FILE_ROWS: Final[Sequence[Row]] = (
    Row("S1", {"place": Place.TRIMMED}, Action.REMOVE,
        "The head was moved durably; the power failed before this file was removed."),
    Row("S2", {"place": Place.STRAY}, Action.REFUSE,
        "The checkpoint lists every file below its position. A file that it does not list is not "
        "part of this log: something else wrote into the folder.",
        says="at position {position} a segment file begins that the checkpoint does not "
        "list, between files that it lists: something other than dledger put it here"),
    Row("S3", {"place": Place.COVERED, "header": FoundHeader.SOUND}, Action.USE,
        "The ordinary case. Its entries are not read now; damage is found on reading (I15)."),
    Row("S4", {"place": Place.COVERED, "header": FoundHeader.FOREIGN}, Action.REFUSE,
        "The file was replaced by one that belongs elsewhere: its entries are lost.",
        says="at position {position} a segment file is expected that follows the one before "
        "it, and this one belongs elsewhere: {found}"),
    Row("S5", {"place": Place.COVERED, "header": FoundHeader.BAD}, Action.REFUSE,
        "The header was synced before the first entry, so this is damage. The salt is lost with "
        "it, and the stamps of its entries prove nothing any more.",
        says="at position {position} the segment file's header is damaged: {found}. It was "
        "synced before the first entry"),
    Row("S6", {"place": Place.COVERED, "header": FoundHeader.MISSING}, Action.REFUSE,
        "A file whose entries were synced is gone.",
        says="at position {position} a segment file begins that the checkpoint lists, and "
        "the file is missing"),
    Row("S7", {"place": Place.LATER, "header": FoundHeader.SOUND}, Action.USE,
        "It was made since the checkpoint and follows what was read: its entries come next."),
    Row("S8", {"place": Place.LATER, "header": FoundHeader.FOREIGN}, Action.REFUSE,
        "It does not follow what was read so far: a file between is missing or was exchanged.",
        says="at position {position} a segment file is expected that follows the entries "
        "before it, and this one does not: {found}"),
    Row("S9", {"place": Place.LATER, "header": FoundHeader.BAD, "last": True, "written": False},
        Action.REMOVE,
        "The power failed while the file was made. Header and name are synced before its first "
        "entry, and there is none, so nothing was ever promised in it. Its name still proves that "
        "the file before is sealed."),
    Row("S10", {"place": Place.LATER, "header": FoundHeader.BAD, "last": True, "written": True},
        Action.REFUSE,
        "Something was written behind the header, so the header was synced: this is damage.",
        says="at position {position} the segment file's header is damaged although "
        "something was written behind it: {found}"),
    Row("S11", {"place": Place.LATER, "header": FoundHeader.BAD, "last": False}, Action.REFUSE,
        "A later file exists, so this one was sealed and its header synced: this is damage.",
        says="at position {position} the segment file's header is damaged although later "
        "files exist: {found}"),
    Row("S12", {"place": Place.LATER, "header": FoundHeader.MISSING}, Action.REFUSE,
        "Only listed files can be found missing by name; a gap behind them shows as S8 or T2. "
        "The row makes the table total.",
        says="at position {position} a segment file is expected, and it is missing"),
)  # fmt: skip

TAIL_ROWS: Final[Sequence[Row]] = (
    Row("T1", {"synced": True}, Action.REFUSE,
        "Bytes at or behind this place were synced, and perhaps acknowledged. Cutting them would "
        "lose entries without a trace; the operator sets the folder aside and the group refills "
        "this member.",
        says="at position {position} a sound entry is expected that was synced here, and "
        "perhaps acknowledged; found: {found}"),
    Row("T2", {"synced": False, "last": False}, Action.REFUSE,
        "A later file exists, so this one was sealed and synced to its end: this is damage.",
        says="at position {position} a sound entry is expected, because a later file shows "
        "that this one was complete; found: {found}"),
    Row("T3", {"synced": False, "last": True, "ending": Ending.NOTHING}, Action.KEEP,
        "The clean end of the log: preallocated zeros, or the end of the file."),
    Row("T4", {"synced": False, "last": True, "ending": Ending.TORN}, Action.CUT,
        "A torn tail: the power failed before a sync of this place ended, so nothing here was "
        "promised to survive it. Entries behind the tear may be sound, of the same round or, with "
        "`flush: async`, of a later one; they may not be kept without what is before them."),
    Row("T5", {"synced": False, "last": True, "ending": Ending.STALE}, Action.CUT,
        "These bytes are left from before the suffix was cut, or the disk wrote them to a wrong "
        "place. Nothing says that they were synced here: the log ends before them."),
)  # fmt: skip

Facts = FolderFacts | FileFacts | TailFacts


def fitting(rows: Sequence[Row], facts: Facts) -> list[Row]:
    """Return all rows that fit the facts."""
    found = {field.name: getattr(facts, field.name) for field in fields(facts)}
    for row in rows:
        assert row.facts.keys() <= found.keys(), f"{row.label} names facts that do not exist"
    return [row for row in rows if all(found[name] == value for name, value in row.facts.items())]


def decide(rows: Sequence[Row], facts: Facts) -> Row:
    """Return the one row that fits the facts."""
    matches = fitting(rows, facts)
    assert len(matches) == 1, f"{facts} fits {[row.label for row in matches]}"
    return matches[0]
