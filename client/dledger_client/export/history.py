"""What an export holds by now: its manifests read in order. Owns: versions, live files, adoption.

Manifests are the only truth: a file that none names is nobody's, and a plan without a manifest is
work to finish, whoever began it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dledger_client.export.errors import ExportCode, ExportError, damaged
from dledger_client.export.layout import Layout
from dledger_client.export.records import (
    EXPORT,
    NUMBER_DIGITS,
    FileEntry,
    Identity,
    Manifest,
    Plan,
    load_manifest,
    load_plan,
    manifest_name,
    plan_name,
    untiled,
)
from dledger_client.export.storage import Storage

_SUFFIX = ".json"


def last_number(storage: Storage) -> int:
    """Return the newest version's number; -1 before the first. DAMAGED when one is missing."""
    numbers = [
        int(name.removesuffix(_SUFFIX))
        for name in storage.names("_dledger/manifests")
        if len(name) == NUMBER_DIGITS + len(_SUFFIX) and name.removesuffix(_SUFFIX).isdigit()
    ]
    if numbers and numbers != list(range(len(numbers))):
        missing = next(n for n in range(len(numbers) + 1) if n not in numbers)
        raise damaged(manifest_name(missing), "is missing, and later ones are there")
    return len(numbers) - 1


def manifest_of(storage: Storage, number: int) -> Manifest:
    """Return a published version; VERSION_UNKNOWN, DAMAGED, NEWER_FORMAT."""
    name = manifest_name(number)
    data = storage.read(name)
    if data is None:
        raise ExportError(
            ExportCode.VERSION_UNKNOWN,
            f"{storage.root} has no version {number}",
            "see: dledger export status",
        )
    manifest = load_manifest(name, data)
    if manifest.number != number:
        raise damaged(name, f"says that it is number {manifest.number}")
    return manifest


def open_plan(storage: Storage, number: int) -> Plan | None:
    """Return the plan of a number if somebody made one; settled, so it is safe to build on."""
    name = plan_name(number)
    data = storage.read(name)
    if data is None:
        return None
    storage.settle(name)
    plan = load_plan(name, data)
    if plan.number != number:
        raise damaged(name, f"says that it is number {plan.number}")
    return plan


@dataclass(slots=True)
class Version:
    """All that is exported as of one manifest."""

    last: Manifest
    files: dict[str, FileEntry] = field(default_factory=dict[str, FileEntry])
    """Live, by path."""
    start: dict[int, int] = field(default_factory=dict[int, int])
    """Where the export of each queue began."""
    removed_ms: dict[str, int] = field(default_factory=dict[str, int])
    """When each file that is not live any more was replaced."""
    manifests: tuple[Manifest, ...] = ()

    @property
    def rows(self) -> int:
        """How many records the version holds."""
        return sum(entry.rows for entry in self.files.values())


def load(storage: Storage, number: int | None = None) -> Version:
    """Return a version, the newest by default; NOT_AN_EXPORT, VERSION_UNKNOWN, DAMAGED."""
    newest = last_number(storage)
    if newest < 0:
        raise ExportError(
            ExportCode.NOT_AN_EXPORT,
            f"{storage.root} holds no published version of an export",
            "is the path right? if a first run was interrupted, run it again",
        )
    wanted = newest if number is None else number
    if not 0 <= wanted <= newest:
        raise ExportError(
            ExportCode.VERSION_UNKNOWN,
            f"{storage.root} has versions 0 to {newest}, not {wanted}",
            "see: dledger export status",
        )
    manifests = tuple(manifest_of(storage, each) for each in range(wanted + 1))
    version = Version(manifests[-1], manifests=manifests)
    for before, manifest in zip((None, *manifests), manifests, strict=False):
        _check_goes_on(before, manifest)
        _apply(version, manifest)
    return version


def _check_goes_on(before: Manifest | None, manifest: Manifest) -> None:
    """Raise DAMAGED unless a version begins where the one before ends, and is whole."""
    name = manifest_name(manifest.number)
    for queue, offset in position_of(before).items():
        if manifest.start.get(queue) != offset:
            raise damaged(
                name,
                f"begins queue {queue} at {manifest.start.get(queue)}, the version before ends at "
                f"{offset}",
            )
    if manifest.start.keys() != manifest.end.keys():
        raise damaged(name, "start and end name other queues")
    if manifest.kind == EXPORT:
        wanted = [(queue, manifest.start[queue], end) for queue, end in manifest.end.items()]
        if wrong := untiled(wanted, manifest.added, manifest.gaps):
            raise damaged(name, wrong)


def _apply(version: Version, manifest: Manifest) -> None:
    name = manifest_name(manifest.number)
    for path in manifest.removed:
        if version.files.pop(path, None) is None:
            raise damaged(name, f"removes {path}, which is not there")
        version.removed_ms[path] = manifest.time_ms
    for entry in manifest.added:
        if entry.path in version.files:
            raise damaged(name, f"adds {entry.path} again")
        version.files[entry.path] = entry
    for queue, offset in manifest.start.items():
        version.start.setdefault(queue, offset)


def check_owner(last: Manifest | Plan, identity: Identity, layout: Layout | None) -> None:
    """Raise FOREIGN_CLUSTER, OTHER_TOPIC or OTHER_LAYOUT when a folder is not this export's."""
    mine = last.identity
    if mine.cluster != identity.cluster:
        raise ExportError(
            ExportCode.FOREIGN_CLUSTER,
            f"the folder holds an export of cluster {mine.cluster}, this is {identity.cluster}",
            "choose another folder for this cluster",
        )
    if (mine.topic, mine.topic_id) != (identity.topic, identity.topic_id):
        again = " (deleted and made anew)" if mine.topic == identity.topic else ""
        raise ExportError(
            ExportCode.OTHER_TOPIC,
            f"the folder holds topic {mine.topic} {mine.topic_id}, this is {identity.topic} "
            f"{identity.topic_id}{again}",
            "choose another folder for this topic",
        )
    if layout is not None and last.layout is not layout:
        raise ExportError(
            ExportCode.OTHER_LAYOUT,
            f"the folder was begun with --layout {last.layout}, not {layout}",
            "leave the option out, or choose another folder",
        )


def position_of(last: Manifest | None) -> Mapping[int, int]:
    """Return how far each queue is exported."""
    return {} if last is None else dict(last.end)
