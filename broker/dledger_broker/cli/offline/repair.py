"""`dledger repair`: set a damaged data folder aside, so that the member starts empty.

The command repairs nothing in place and deletes nothing. A damaged member must not continue with
the rest of its data: it might have forgotten a vote or an acknowledged entry. The renamed folder
stays for inspection. The member starts empty, in quarantine, and its group fills it again (D18).
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from dledger.log.errors import DamagedFile, DamagedLog, NewerFormat
from dledger.log.folder import DataFolder
from dledger.log.identity import INCARNATION_SIZE, Identity
from dledger.log.reading.file_pool import FilePool
from dledger.log.recovery.recover import examine
from dledger.raft.commit.applying import check_state
from dledger.store.lmdb_check import check_store
from dledger.store.sealed import reason_of
from dledger.store.store import DamagedStore, NewerStore, StoreFailed
from dledger.types import MemberId
from dledger_broker.cli.asking import Yes, ask
from dledger_broker.cli.offline.folders import FolderArgument, one_data_folder
from dledger_broker.cli.output import (
    CommandFailed,
    JsonFlag,
    print_json,
    progress_bar,
    say,
)
from dledger_offline.folder import (
    DAMAGED_MARK,
    Damage,
    EntryFound,
    Found,
    ReadOnlyFileSystem,
    SegmentStart,
    is_running,
    read_hard_state,
    read_identity,
    segment_files,
    state_folder,
    walk_segments,
)
from dledger_offline.state import applied_index, open_state
from dledger_proto.exit_codes import Exit

T = TypeVar("T")

ASIDE_MAX: Final = 1_000
_UNKNOWN: Final = Identity("", "", MemberId(""), bytes(INCARNATION_SIZE))
"""Stands for an unreadable identity: it names no group, so no group is compared."""
NEWER: Final = "a newer format is not damage; nothing was changed"
MAY_NOT_READ: Final = "this says nothing about damage: run the command as the member's user"
UP_RECORD: Final = "cluster.json"
UP_DEPTH: Final = 3
"""`dledger up` keeps a group in FOLDER/MEMBER/data/GROUP."""


def repair(
    folder: FolderArgument,
    yes: Yes = False,
    check: Annotated[bool, typer.Option("--check", help="Only show what is damaged.")] = False,
    force: Annotated[
        bool,
        typer.Option("--even-if-healthy", help="Set the folder aside although it has no damage."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Explain what is damaged in a stopped member's folder, and set the folder aside.

    The command renames the folder to `<folder>.damaged-N` and deletes nothing. The member then
    starts empty, in quarantine: it does not vote and does not count towards a majority until the
    other members have filled it. Do this for one member at a time. Start the member yourself: a
    service manager may have given up on it, and `dledger up` does not restart a member whose data
    is damaged.
    """
    found = one_data_folder(folder)
    if is_running(found):
        raise CommandFailed(f"the member of {found} is running", "stop the member first")
    problems = list(find_damage(found))
    if check:
        _tell(found, problems, None, as_json)
        raise typer.Exit(Exit.FAILED if problems else Exit.OK)
    if not problems and not force:
        raise CommandFailed(
            f"{found} is healthy: every file passes its checks",
            "use --even-if-healthy to set it aside all the same",
        )
    if not as_json:
        _tell(found, problems, None, as_json=False)
    ask(
        f"{found} is not renamed",
        "Set it aside?",
        yes=yes,
        warning=f"{found} is renamed, and the member starts empty. Until the other members have "
        "filled it, it counts towards no majority: losing one more member may stop the group.",
    )
    aside = set_aside(found)
    if as_json:
        _tell(found, problems, aside, as_json)
    else:
        say(f"renamed to {aside}")
        say(
            f"{_how_to_start(found)}: it starts empty, in quarantine, and the other members "
            "fill it (see dledger status). Keep the renamed folder until the member serves."
        )


def _how_to_start(folder: Path) -> str:
    """Return the sentence that says how to start the member of this folder."""
    for parent in folder.absolute().parents[:UP_DEPTH]:
        if (parent / UP_RECORD).exists():
            return (
                "Start the member again, with all of its cluster (`dledger up` leaves a damaged "
                f"member down): Ctrl-C if it runs, then dledger up --folder {parent}"
            )
    return "Start the member again (dledger broker, or your service manager)"


def find_damage(folder: Path) -> Iterator[str]:
    """Yield a sentence for each thing that keeps a member from using the folder.

    Recovery itself decides what a start would refuse. A torn end is no damage: a start cuts it off.
    The search also reads what a start does not read: the entries below the checkpoint and the rows
    of a large state. CommandFailed when this process may not read a file: that is no damage.
    """
    identity = read_identity(folder)
    yield from _problem(identity)
    yield from _problem(read_hard_state(folder))
    yield from _log_damage(folder, identity.value or _UNKNOWN)
    yield from _state_damage(state_folder(folder))
    yield from _mismatch(folder, identity.value or _UNKNOWN)


def set_aside(folder: Path) -> Path:
    """Rename the folder to a free name beside it, durably; return that name."""
    for number in range(1, ASIDE_MAX + 1):
        aside = folder.with_name(f"{folder.name}{DAMAGED_MARK}{number}")
        if not aside.exists():
            break
    else:
        raise CommandFailed(f"{ASIDE_MAX} folders were set aside beside {folder}", "remove some")
    try:
        folder.rename(aside)
        parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
    except OSError as error:
        raise CommandFailed(f"{folder} cannot be renamed: {error.strerror}") from error
    return aside


def _problem(found: Found[T]) -> Iterator[str]:
    if found.refused:
        raise CommandFailed(f"{found.path}: {found.problem}", MAY_NOT_READ)
    if found.value is None:
        yield f"{found.path}: {found.problem}"


def _log_damage(folder: Path, identity: Identity) -> Iterator[str]:
    """Yield what recovery refuses, and damaged entries that recovery does not read."""
    pool = FilePool(ReadOnlyFileSystem())
    refused: DamagedLog | None = None
    try:
        end = examine(DataFolder(pool.fs, str(folder), identity, None), pool).end.position
    except DamagedLog as damage:
        refused, end = damage, damage.position
        yield f"{damage.file}: {damage.reason}"
    except NewerFormat as newer:
        raise CommandFailed(newer.detail, NEWER) from newer
    finally:
        pool.close()
    files = segment_files(folder)
    with progress_bar("checking segments", len(files), show=True) as advance:
        for piece in walk_segments(folder):
            match piece:
                case SegmentStart():
                    advance(1)
                case EntryFound(path, entry, problem):
                    if problem and entry.header.position < end:
                        yield f"{path}: at position {entry.header.position}: {problem}"
                case Damage(path, position, reason):
                    known = refused is not None and (refused.file, refused.position) == (
                        str(path),
                        position,
                    )
                    if position < end and not known:
                        yield f"{path}: at position {position}: {reason}"


def _state_damage(folder: Path) -> Iterator[str]:
    """Yield what a start refuses, damage that a start does not read, and rows without a meaning."""
    try:
        checked = check_store(str(folder), whole=True)
    except DamagedStore as error:
        yield reason_of(error)
        return
    except NewerStore as error:
        raise CommandFailed(str(error), NEWER) from error
    except StoreFailed as error:
        raise CommandFailed(error.strerror or str(error), MAY_NOT_READ) from error
    if checked.totals is None:
        return  # a folder that was just made has no rows yet
    for row in open_state(folder, None, sys.maxsize):
        if row.problem:
            yield f"{folder}: {row.table} {row.key}: {row.problem}"


def _mismatch(folder: Path, identity: Identity) -> Iterator[str]:
    """Yield why the state does not fit the log, when both can be read."""
    pool, state = FilePool(ReadOnlyFileSystem()), state_folder(folder)
    try:
        log = examine(DataFolder(pool.fs, str(folder), identity, None), pool)
        first = log.segments[0].base_index if log.segments else 1
        check_state(str(state), applied_index(state), first, log.end.index)
    except (DamagedLog, NewerFormat, OSError):
        return  # said before
    except DamagedFile as damage:
        yield f"{damage.file}: {damage.reason}"
    finally:
        pool.close()


def _tell(folder: Path, problems: list[str], aside: Path | None, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "problems": problems,
                "renamed_to": str(aside) if aside is not None else None,
            }
        )
        return
    if not problems:
        say(f"{folder}: no damage found")
    for problem in problems:
        say(problem)
