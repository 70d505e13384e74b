"""`dledger repair`: set a damaged data folder aside, so that the member returns as a wiped one.

Nothing is mended in place and nothing is deleted: a damaged member must not go on with what is left
(it might have forgotten a vote or an acknowledged entry). Renamed away, the folder stays for
inspection; the member starts empty, in quarantine, and is filled again by its group (D18).
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from dledger.log.checkpoint import Checkpoint
from dledger_broker.cli.folders import FolderArgument, one_data_folder
from dledger_broker.cli.output import (
    CommandFailed,
    Exit,
    JsonFlag,
    console,
    print_json,
    progress_bar,
)
from dledger_broker.offline import (
    DAMAGED_MARK,
    Damage,
    EntryFound,
    Found,
    SegmentStart,
    is_running,
    read_checkpoint,
    read_hard_state,
    read_identity,
    segment_files,
    state_folder,
    walk_segments,
)
from dledger_broker.offline_state import open_state

T = TypeVar("T")

ASIDE_MAX: Final = 1_000
UP_RECORD: Final = "cluster.json"
UP_DEPTH: Final = 3
"""`dledger up` keeps a group in FOLDER/MEMBER/data/GROUP."""
EPILOG: Final = (
    "Exit codes: 0 set aside, or --check found it healthy; 1 refused, or --check found damage; "
    "2 bad input."
)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("repair", epilog=EPILOG)(repair)


def repair(
    folder: FolderArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only say what is damaged.")] = False,
    force: Annotated[
        bool, typer.Option("--even-if-healthy", help="Set aside a folder without damage.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Explain what is damaged in a stopped member's folder and set the folder aside.

    The folder is renamed to `<folder>.damaged-N`; nothing is deleted. Started again, the member is
    empty and in quarantine: it neither votes nor counts until the others have filled it. Do this
    for one member at a time. It does not start by itself: a service manager may have given it up,
    and `dledger up` does not start a member again that found its data damaged.
    """
    found = one_data_folder(folder)
    if is_running(found):
        raise CommandFailed(f"the member of {found} is running", "stop it first")
    problems = list(find_damage(found))
    if check:
        _tell(found, problems, None, as_json)
        raise typer.Exit(Exit.FAILED if problems else Exit.OK)
    if not problems and not force:
        raise CommandFailed(
            f"{found} is healthy: every file passes its checks",
            "--even-if-healthy sets it aside all the same",
        )
    if not as_json:
        _tell(found, problems, None, as_json=False)
    if not yes:
        _ask(found)
    aside = set_aside(found)
    if as_json:
        _tell(found, problems, aside, as_json)
    else:
        screen = console()
        screen.print(f"renamed to {aside}", markup=False)
        screen.print(
            f"{_how_to_start(found)}: it returns empty, in quarantine, and is filled by the "
            "others (dledger status shows it). Keep the renamed folder until it serves.",
            markup=False,
        )


def _how_to_start(folder: Path) -> str:
    """Return the words for who is to start the member of this folder, by who keeps it."""
    for parent in folder.absolute().parents[:UP_DEPTH]:
        if (parent / UP_RECORD).exists():
            return (
                "Start the member again, with all of its cluster (`dledger up` leaves a damaged "
                f"member down): Ctrl-C if it runs, then dledger up --folder {parent}"
            )
    return "Start the member again (dledger broker, or your service manager)"


def find_damage(folder: Path) -> Iterator[str]:
    """Yield a sentence for each thing that keeps a member from using the folder.

    A torn end behind what the checkpoint covers is no damage: the next start cuts it.
    """
    yield from _problem(read_identity(folder))
    yield from _problem(read_hard_state(folder))
    checkpoint = read_checkpoint(folder)
    yield from _problem(checkpoint)
    yield from _log_damage(folder, checkpoint.value)
    yield from _state_damage(state_folder(folder))


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
    if found.value is None:
        yield f"{found.path}: {found.problem}"


def _log_damage(folder: Path, checkpoint: Checkpoint | None) -> Iterator[str]:
    files = segment_files(folder)
    if checkpoint is not None:
        there = {path.name for path in files}
        for position, _ in checkpoint.segments:
            if f"{position:020}.log" not in there:
                yield f"{folder}/log/{position:020}.log: missing, the checkpoint lists it"
    synced = checkpoint.end.position if checkpoint is not None else 0
    end = checkpoint.first_position if checkpoint is not None else 0
    with progress_bar("checking segments", len(files), show=True) as advance:
        for piece in walk_segments(folder):
            match piece:
                case SegmentStart(path, position, _, _, problem):
                    advance(1)
                    if problem and (position < synced or path != files[-1]):
                        yield f"{path}: {problem}"
                case EntryFound(path, entry, problem):
                    if not problem:
                        end = entry.header.end_position
                    elif entry.header.position < synced:
                        yield f"{path}: position {entry.header.position}: {problem}"
                case Damage(path, position, reason, resumed_at, later_files):
                    if position < synced or later_files or resumed_at is not None:
                        yield f"{path}: position {position}: {reason}"
    if end < synced:
        yield f"{folder}/log: ends at position {end}, the checkpoint says {synced}"


def _state_damage(folder: Path) -> Iterator[str]:
    if not (folder / "data.mdb").exists():
        return  # a folder that was just made has none yet
    try:
        for row in open_state(folder, None, sys.maxsize):
            if row.problem:
                yield f"{folder}: {row.table} {row.key}: {row.problem}"
    except OSError as error:
        yield f"{folder}: {error.strerror}"


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
    screen = console()
    if not problems:
        screen.print(f"{folder}: no damage found", markup=False)
    for problem in problems:
        screen.print(problem, markup=False)


def _ask(folder: Path) -> None:
    if not sys.stdin.isatty():
        raise CommandFailed(
            f"{folder} is not renamed without being asked for", "say --yes", code=Exit.BAD_INPUT
        )
    console().print(
        f"{folder} is renamed, and the member starts empty. It counts for no majority until the "
        "others have filled it: while it is away, losing one more member may stop the group.",
        markup=False,
    )
    if not typer.confirm("Set it aside?"):
        raise CommandFailed("nothing was changed")
