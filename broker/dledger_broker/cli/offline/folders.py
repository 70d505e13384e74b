"""The one data folder a command is about."""

from pathlib import Path
from typing import Annotated, Final

import typer

from dledger_broker.cli.output import bad_input
from dledger_offline.folder import find_data_folders

FOLDERS_SHOWN_MAX: Final = 10

FolderArgument = Annotated[
    Path,
    typer.Argument(help="A member's data folder, or a folder that holds just one."),
]


def one_data_folder(path: Path) -> Path:
    """Return the data folder at or below `path`; ends the command when it is not just one."""
    if not path.is_dir():
        bad_input(f"{path} is not a folder")
    found = find_data_folders(path)
    if not found:
        bad_input(f"no member's data folder in {path}", "it has a `log` folder and an `identity`")
    if len(found) > 1:
        listed = ", ".join(str(folder) for folder in found[:FOLDERS_SHOWN_MAX])
        if len(found) > FOLDERS_SHOWN_MAX:
            listed += f" and {len(found) - FOLDERS_SHOWN_MAX} more"
        bad_input(f"{path} holds {len(found)} data folders", f"say which one: {listed}")
    return found[0]
