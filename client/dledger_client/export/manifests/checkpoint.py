"""What an export holds as of one version, in one file: readers need not read all that led to it.

Owns: what a version is in memory, and its JSON. Pure. Not: where checkpoints are read and written
(`history.py`).

```
_dledger/checkpoints/N.json     format and sum as those of manifests (`records.py`), and
    number      N
    manifest    CRC-32C of manifest N's bytes: of no other export's version N
    files       all that are live        start       where each queue's export began
    gaps        all that is lost         removed_ms  when each file was replaced that is there still
```

A checkpoint is derived, and readers believe it only where it fits: it names the manifest that is
there, and its files and gaps cover each queue from its beginning to the end in that manifest.
Readers ignore a checkpoint that does not fit. A compaction publishes a checkpoint, for then
versions are many and files are few. Where each version leaves files of its own, reading all their
names takes the time, and a checkpoint would not help.
"""

from dataclasses import asdict, dataclass, field
from typing import Final

from crc32c import crc32c

from dledger_client.export.errors import damaged
from dledger_client.export.manifests.records import (
    FORMAT,
    NO_RECORD,
    NUMBER_DIGITS,
    FileEntry,
    Gap,
    Manifest,
    by_queue,
    fields_of,
    file_of,
    gap_of,
    summed,
    typed,
    untiled,
)

CHECKPOINTS: Final = "_dledger/checkpoints"


@dataclass(slots=True)
class Version:
    """All that is exported as of one manifest."""

    last: Manifest
    files: dict[str, FileEntry] = field(default_factory=dict[str, FileEntry])
    """Live, by path."""
    start: dict[int, int] = field(default_factory=dict[int, int])
    """Where the export of each queue began."""
    gaps: list[Gap] = field(default_factory=list[Gap])
    """All that is missing, of whichever version."""
    removed_ms: dict[str, int] = field(default_factory=dict[str, int])
    """When each file that is no longer live was replaced; files that are gone may be missing."""

    @property
    def rows(self) -> int:
        """How many records the version holds."""
        return sum(entry.rows for entry in self.files.values())


def checkpoint_name(number: int) -> str:
    """Return the name of a version's checkpoint."""
    return f"{CHECKPOINTS}/{number:0{NUMBER_DIGITS}d}.json"


def dump_checkpoint(version: Version, manifest: bytes) -> bytes:
    """Return the JSON of a version; `manifest` is what the file of its last one holds."""
    files = sorted(version.files.values(), key=lambda each: (each.queue, each.start))
    return summed(
        {
            "format": FORMAT,
            "number": version.last.number,
            "manifest": crc32c(manifest),
            "files": [asdict(each) for each in files],
            "start": version.start,
            "gaps": [asdict(each) for each in version.gaps],
            "removed_ms": version.removed_ms,
        }
    )


def load_checkpoint(name: str, data: bytes, last: Manifest, manifest: bytes) -> Version:
    """Return a version; ExportError NEWER_FORMAT, or DAMAGED where it does not fit its manifest."""
    said = fields_of(name, data)
    try:
        if (said["number"], said["manifest"]) != (last.number, crc32c(manifest)):
            raise ValueError("it belongs to another manifest")
        entries = [file_of(last.identity.topic, each) for each in said["files"]]
        version = Version(
            last,
            {each.path: each for each in entries},
            by_queue(said["start"]),
            [gap_of(each) for each in said["gaps"]],
            {path: typed(path, int, at) for path, at in said["removed_ms"].items()},
        )
        wanted = [(queue, version.start[queue], end) for queue, end in last.end.items()]
    except NO_RECORD as error:
        raise damaged(
            name, f"not a checkpoint of an export: {type(error).__name__} {error}"
        ) from error
    if wrong := untiled(wanted, entries, version.gaps):
        raise damaged(name, wrong)
    return version
