"""What an export holds by now: its manifests read in order. Owns: versions, live files, adoption.

Manifests are the only truth. A file that no manifest names belongs to no version. A plan without a
manifest is work to finish, whoever began it. Checkpoints are computed from manifests. With one, a
reader need not read the older manifests.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from dledger_client.export.errors import ExportCode, ExportError, damaged
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import Layout
from dledger_client.export.manifests.checkpoint import (
    CHECKPOINTS,
    Version,
    checkpoint_name,
    dump_checkpoint,
    load_checkpoint,
)
from dledger_client.export.manifests.records import (
    EXPORT,
    NUMBER_DIGITS,
    Identity,
    Manifest,
    Plan,
    load_manifest,
    load_plan,
    manifest_name,
    plan_name,
    untiled,
)
from dledger_proto.names import printable

_NUMBERED: Final = re.compile(rf"([0-9]{{{NUMBER_DIGITS}}})\.json")
_LOG: Final = logging.getLogger("dledger_client.export")


def last_number(storage: ExportStorage) -> int:
    """Return the newest version's number; -1 before the first. DAMAGED when one is missing."""
    numbers = _numbers(storage, "_dledger/manifests")
    if numbers and numbers != list(range(len(numbers))):
        missing = next(n for n in range(len(numbers) + 1) if n not in numbers)
        raise damaged(manifest_name(missing), "is missing, but later versions exist")
    return len(numbers) - 1


def _numbers(storage: ExportStorage, folder: str) -> list[int]:
    """Return the numbers that files of a folder are named by, in order."""
    return [int(found[1]) for name in storage.names(folder) if (found := _NUMBERED.fullmatch(name))]


def manifest_of(storage: ExportStorage, number: int) -> Manifest:
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


def open_plan(storage: ExportStorage, number: int) -> Plan | None:
    """Return the plan of a number, None without one. It is synced, so it is safe to build on."""
    name = plan_name(number)
    data = storage.read(name)
    if data is None:
        return None
    storage.settle(name)
    plan = load_plan(name, data)
    if plan.number != number:
        raise damaged(name, f"says that it is number {plan.number}")
    return plan


def load(storage: ExportStorage, number: int | None = None, *, whole: bool = False) -> Version:
    """Return a version, the newest by default; NOT_AN_EXPORT, VERSION_UNKNOWN, DAMAGED.

    `whole`: by manifests alone, however many there are.
    """
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
    version = None if whole else _nearest(storage, wanted)
    for each in range(0 if version is None else version.last.number + 1, wanted + 1):
        manifest = manifest_of(storage, each)
        _check_goes_on(None if version is None else version.last, manifest)
        version = version or Version(manifest)
        _apply(version, manifest)
    assert version is not None, "there is a version 0"
    return version


def _nearest(storage: ExportStorage, wanted: int) -> Version | None:
    """Return the last version up to `wanted` that has a checkpoint which fits."""
    for number in reversed(_numbers(storage, CHECKPOINTS)):
        name = checkpoint_name(number)
        data = storage.read(name) if number <= wanted else None
        if data is None:  # not asked for, or collected meanwhile
            continue
        try:
            last = manifest_of(storage, number)
            return load_checkpoint(name, data, last, _bytes_of(storage, number))
        except ExportError as error:
            told = printable(error.what)
            _LOG.warning("%s; ignored: delete it to stop this warning", told)
    return None


def keep_checkpoint(storage: ExportStorage, number: int) -> None:
    """Publish a checkpoint of a version. A failure is a warning: it only saves readers time.

    It leaves out files that were replaced and are gone, or it would grow with each compaction:
    only the replacement times of files that are still there matter.
    """
    try:
        version = load(storage, number)
        there = {
            path: at for path, at in version.removed_ms.items() if storage.size(path) is not None
        }
        data = dump_checkpoint(replace(version, removed_ms=there), _bytes_of(storage, number))
        storage.put_if_absent(checkpoint_name(number), data)
    except (ExportError, OSError) as error:
        _LOG.warning("version %s has no checkpoint, readers use the one before: %s", number, error)


def replaced_checkpoints(storage: ExportStorage) -> list[str]:
    """Return the names of checkpoints that nobody needs: all but the last two."""
    return [checkpoint_name(number) for number in _numbers(storage, CHECKPOINTS)[:-2]]


def _bytes_of(storage: ExportStorage, number: int) -> bytes:
    data = storage.read(manifest_name(number))
    assert data is not None, "a manifest is never deleted"
    return data


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
    version.last = manifest
    version.gaps += manifest.gaps
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
        again = " (deleted and created again)" if mine.topic == identity.topic else ""
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
