"""The name under which an exporter holds the log: one for each that runs, used again by the next.

The hold of an exporter that died ends minutes later, and a queue has at most 64 holds. If each
start drew a new name, an exporter that restarts in a loop would use them up. With one name for all,
an exporter that is done would end the hold of another. So the names lie in the export, in
`_dledger/holders/0` and so on. An exporter that locks such a file has its name. The lock ends with
the process, however it ends. Names are random, for a folder of the same path on another host is
another export. Names also depend on the file, for a copy of a folder is another export, too.
"""

import fcntl
import os
import re
from pathlib import Path
from typing import BinaryIO, Final

from dledger_client.export.errors import ExportError
from dledger_client.export.files.storage import ExportStorage

HOLDERS: Final = "_dledger/holders"
HOLDERS_MAX: Final = 16
"""Exporters of one folder that can have a name to come back to at the same time."""
_NAME: Final = re.compile(rb"[0-9a-f]{16}")


class Holder:
    """A name that nobody else has as long as this is open."""

    def __init__(self, storage: ExportStorage | None) -> None:
        """Take a free name; draw one before the export's first version, or where nothing locks.

        Without a storage it is always drawn.
        """
        self._file: BinaryIO | None = None
        self.name = (self._taken(storage) if storage else "") or os.urandom(8).hex()

    def close(self) -> None:
        """Free the name for the next exporter."""
        if self._file is not None:
            self._file.close()

    def _taken(self, storage: ExportStorage) -> str:
        if not storage.names("_dledger"):
            return ""
        for number in range(HOLDERS_MAX):
            path = storage.path(f"{HOLDERS}/{number}")
            try:
                if not path.exists():
                    storage.put_if_absent(f"{HOLDERS}/{number}", os.urandom(8).hex().encode())
                name = self._locked(path)
            except (OSError, ExportError):  # only how soon holds end depends on it
                return ""
            if name:
                return name
        return ""

    def _locked(self, path: Path) -> str:
        """Return the name in a file if no process has it; else empty."""
        file = path.open("r+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return ""
        except OSError:
            file.close()
            raise
        found = file.read(64)
        if not _NAME.fullmatch(found):
            file.close()
            return ""
        self._file = file
        return f"{found.decode()}-{os.fstat(file.fileno()).st_ino:x}"
