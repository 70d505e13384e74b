"""The manifest of a snapshot: `snapshot.json`, which people can read.

Owns: its fields and its file. It is written last: with it the snapshot is whole.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from dledger.files import FileSystem
from dledger.log.atomic_file import CorruptFile, read_file, replace_file
from dledger_proto.errors import DledgerError
from dledger_proto.limits import GROUP_NAME_LENGTH_MAX
from dledger_proto.names import check_name

MANIFEST_FILE: Final = "snapshot.json"
FORMAT: Final = "dledger snapshot 1"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a snapshot is of."""

    name: str
    cluster: str
    group: str
    members: tuple[str, ...]
    """All members of the group. A new cluster has members of the same names."""
    member: str
    """Which of them made the snapshot."""
    first_index: int
    last_index: int
    """The last entry: all of its effects, and no later ones, are in the state."""
    term: int
    time_ms: int
    """The leader's stamp of that entry."""
    digest: str
    """Of the state, as `dledger status` shows it; hexadecimal."""
    made_ms: int
    """When the snapshot was whole, by the member's clock."""
    size: int
    """Of its files, bytes. Sealed segments share their blocks with the member while it has them."""
    format: str = FORMAT


def write_manifest(fs: FileSystem, folder: str, manifest: Manifest) -> None:
    """Write the manifest durably. Blocks; OSError."""
    content = json.dumps(asdict(manifest), indent=1) + "\n"
    replace_file(fs, folder, f"{folder}/{MANIFEST_FILE}", content.encode())


def read_manifest(fs: FileSystem, folder: str) -> Manifest | None:
    """Return the manifest of a snapshot; None: there is none. CorruptFile when it is damaged."""
    content = read_file(fs, f"{folder}/{MANIFEST_FILE}")
    if content is None:
        return None
    try:
        found: dict[str, Any] = json.loads(content)
        manifest = Manifest(
            str(found["name"]), str(found["cluster"]), str(found["group"]),
            tuple(map(str, found["members"])), str(found["member"]), int(found["first_index"]),
            int(found["last_index"]), int(found["term"]), int(found["time_ms"]),
            str(found["digest"]), int(found["made_ms"]), int(found["size"]), str(found["format"]),
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise CorruptFile(f"{folder}/{MANIFEST_FILE}: {error!r}") from error
    if manifest.format != FORMAT:
        raise CorruptFile(f"{folder}/{MANIFEST_FILE}: format {manifest.format!r}, not {FORMAT!r}")
    try:
        for field in (manifest.cluster, manifest.group, *manifest.members):
            check_name("name", field, GROUP_NAME_LENGTH_MAX)
    except DledgerError as error:
        raise CorruptFile(f"{folder}/{MANIFEST_FILE}: {error.detail}") from error
    return manifest
