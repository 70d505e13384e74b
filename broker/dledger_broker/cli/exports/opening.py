"""What every command of exports begins with: folder, cluster, and which failures it expects."""

import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dledger_broker.cli.connect import parse_name_servers
from dledger_broker.cli.output import CommandFailed, bad_input
from dledger_proto.exit_codes import Exit

if TYPE_CHECKING:
    from dledger_client.export.cluster_source import ClusterSource
    from dledger_client.export.files.storage import ExportStorage


def now_ms() -> int:
    """Return the wall clock in milliseconds."""
    return int(time.time() * 1_000)


def open_storage(folder: str) -> "ExportStorage":
    """Return the storage in a folder; end the command when there can be none."""
    from dledger_client.export.files.storage import ExportStorage

    if re.match(r"[a-z][a-z0-9+.-]*://", folder, re.IGNORECASE):
        bad_input(
            f"{folder} is not a folder: exports cannot write to object stores",
            "export to a file system with hard links, and copy from there",
        )
    root = Path(folder).absolute()
    if not root.parent.is_dir():
        bad_input(f"{root.parent} is not a folder", "create it first")
    if root.exists() and not root.is_dir():
        bad_input(f"{root} is not a folder")
    return ExportStorage(root)


def open_source(
    name_servers: str, storage: "ExportStorage", read_from: str, *, is_exporter: bool
) -> "ClusterSource":
    """Return the log of a cluster, as exports read it; the caller closes it."""
    from dledger_broker.cli.client import connection
    from dledger_client.export.cluster_source import ClusterSource

    addresses = parse_name_servers(name_servers)
    return ClusterSource(addresses, storage.root, connection(), read_from, is_exporter=is_exporter)


def not_installed(error: ModuleNotFoundError, extra: str) -> NoReturn:
    """End the command: it needs an extra."""
    remedy = f"install dledger with the extra {extra}, from a checkout or a wheel"
    bad_input(f"{error.name} is not installed", remedy)


@contextmanager
def expected_failures() -> Generator[None]:
    """End the command with one line and an exit code for the failures that an export expects."""
    try:
        from dledger_client.export.errors import ExportCode, ExportError, folder_failed
    except ModuleNotFoundError as error:
        not_installed(error, "arrow")
    codes = {
        ExportCode.BAD_OPTION: Exit.BAD_INPUT,
        ExportCode.FOREIGN_CLUSTER: Exit.CONFLICT,
        ExportCode.OTHER_TOPIC: Exit.CONFLICT,
        ExportCode.OTHER_LAYOUT: Exit.CONFLICT,
        ExportCode.LOG_SHORTER: Exit.CONFLICT,
        ExportCode.CONFLICT: Exit.CONFLICT,
        ExportCode.DATA_LOSS: Exit.DATA_LOSS,
        ExportCode.UNREADABLE: Exit.DATA_LOSS,
    }
    try:
        try:
            yield
        except (ConnectionError, TimeoutError):  # no folder says so; a broken pipe is one of them
            raise
        except OSError as error:
            raise folder_failed("the folder", error) from error
    except ExportError as error:
        what = f"DLEDGER_EXPORT_{error.code}: {error.what}"
        raise CommandFailed(what, error.remedy, code=codes.get(error.code, Exit.FAILED)) from error
