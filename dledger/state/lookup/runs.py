"""The directory of a topic's key index: which runs exist and which merges are under way.

Owns: its value and codec. Not: when runs come and go (`key_index.py`). Little-endian:

    next_run u64, first_block u64, runs u16, merges u16
    run:    level u8, number u64, entries u64, first_time_ms i64, last_time_ms i64,
            last_position u64
    merge:  level u8, output u64, entries u64, in_block u32, inputs u8, input u64 *,
            then, each behind its size u8: a start for every input, the cursor, the open block
"""

import struct
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct("<QQHH")
_RUN: Final = struct.Struct("<BQQqqQ")
_MERGE: Final = struct.Struct("<BQQIB")


class Run(NamedTuple):
    """A sorted run."""

    level: int
    number: int
    entries: int
    first_time_ms: int
    last_time_ms: int
    last_position: int
    """The highest position that an entry refers to."""


@dataclass(slots=True)
class Merge:
    """Runs of one level on their way into a run of the next."""

    level: int
    inputs: tuple[int, ...]
    output: int
    starts: list[bytes]
    """For each input: the name below which its blocks are deleted already."""
    entries: int = 0
    """Written to the output so far."""
    in_block: int = 0
    """Entries in the output's newest block."""
    cursor: bytes = b""
    """Entries below it are in the output, the others in the inputs."""
    open_block: bytes = b""
    """First entry of the output's newest block; empty before the first."""


@dataclass(slots=True)
class Directory:
    """Everything about a topic's runs that their blocks do not say."""

    next_run: int = 0
    first_block: int = 0
    """Number of the oldest level-0 block, or of the next one while level 0 is empty."""
    runs: list[Run] = field(default_factory=list)
    """In the order in which they were finished."""
    merges: list[Merge] = field(default_factory=list)

    def take_run(self) -> int:
        """Return a number for a new run."""
        self.next_run += 1
        return self.next_run - 1

    def merging(self) -> set[int]:
        """Return the numbers of runs that a merge reads."""
        return {number for merge in self.merges for number in merge.inputs}


def encode_directory(directory: Directory) -> bytes:
    """Return the row's value."""
    parts = [
        _HEAD.pack(
            directory.next_run, directory.first_block, len(directory.runs), len(directory.merges)
        )
    ]
    parts += [_RUN.pack(*run) for run in directory.runs]
    for merge in directory.merges:
        parts += (
            _MERGE.pack(
                merge.level, merge.output, merge.entries, merge.in_block, len(merge.inputs)
            ),
            struct.pack(f"<{len(merge.inputs)}Q", *merge.inputs),
        )  # fmt: skip
        for name in (*merge.starts, merge.cursor, merge.open_block):
            parts += (bytes((len(name),)), name)
    return b"".join(parts)


def decode_directory(value: bytes) -> Directory:
    """Return the directory of a row."""
    next_run, first_block, runs, merges = _HEAD.unpack_from(value)
    directory = Directory(next_run, first_block)
    at: int = _HEAD.size
    for _ in range(runs):
        directory.runs.append(Run._make(_RUN.unpack_from(value, at)))
        at += _RUN.size
    for _ in range(merges):
        level, output, entries, in_block, count = _MERGE.unpack_from(value, at)
        at += _MERGE.size
        inputs: tuple[int, ...] = struct.unpack_from(f"<{count}Q", value, at)
        at += 8 * len(inputs)
        names: list[bytes] = []
        for _ in range(count + 2):
            names.append(value[at + 1 : at + 1 + value[at]])
            at += 1 + value[at]
        *starts, cursor, open_block = names
        directory.merges.append(
            Merge(level, inputs, output, starts, entries, in_block, cursor, open_block)
        )
    return directory
