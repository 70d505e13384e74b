"""Finding the one data folder that a command works on."""

from pathlib import Path
from typing import Annotated, Final

import typer

from dledger_broker.cli.output import bad_input
from dledger_offline.folder import find_data_folders

FOLDERS_SHOWN_MAX: Final = 10

FolderArgument = Annotated[
    Path,
    typer.Argument(help="A member's data folder, or a folder that contains exactly one."),
]


def one_data_folder(path: Path) -> Path:
    """Return the data folder at or below `path`; end the command unless there is exactly one."""
    if not path.is_dir():
        bad_input(f"{path} is not a folder")
    found = find_data_folders(path)
    if not found:
        bad_input(
            f"no member's data folder in {path}",
            "a data folder has a folder `log` and a file `identity`",
        )
    if len(found) > 1:
        listed = ", ".join(str(folder) for folder in found[:FOLDERS_SHOWN_MAX])
        if len(found) > FOLDERS_SHOWN_MAX:
            listed += f" and {len(found) - FOLDERS_SHOWN_MAX} more"
        bad_input(f"{path} holds {len(found)} data folders", f"name one:  {listed}")
    return found[0]
