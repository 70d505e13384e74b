"""What can be wrong with a stopped member's folder that is read instead of the cluster. Pure.

Owns: the names of what can be wrong with a folder, and what a reader of a folder needs to know.
Not: the reading, which needs the state's tables (`dledger_offline.reading`).
"""

import enum
from dataclasses import dataclass


class FolderProblem(enum.Enum):
    """What is wrong with a folder, by a stable name."""

    NOT_FOUND = "no data folder of a member is there"
    IN_USE = "a member runs on it"
    AMBIGUOUS = "it holds several data folders, and any of them could be meant"
    INCOMPLETE = "a part of it is missing"
    DAMAGED = "a file does not hold what was written to it"
    UNREADABLE = "the operating system refuses to open it"
    NEWER = "a later version of dledger wrote it"
    CHANGED = "it is another folder than the one that the plan was made for"
    UNSUPPORTED = "packages are missing that reading it needs"


class FolderError(Exception):
    """A folder cannot be read; the sentence names folder or file, and what to do."""

    def __init__(self, problem: FolderProblem, detail: str) -> None:
        super().__init__(f"FOLDER_{problem.name}: {detail}")
        self.problem = problem
        self.detail = detail

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as it is: `args` are the sentence, not what the constructor takes."""
        return type(self), (self.problem, self.detail)


@dataclass(frozen=True, slots=True)
class FolderCopy:
    """One group's data folder as a plan found it."""

    group: str
    path: str
    commit: int
    """Which save of the state the plan is of."""


@dataclass(frozen=True, slots=True)
class FolderOrigin:
    """Where ranges are read from, in place of members. Pickles: no file is open in it."""

    copies: tuple[FolderCopy, ...]
    fail_on_unreadable: bool = True
    """As `Origin` has it."""
