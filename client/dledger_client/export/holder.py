"""By whose name an exporter keeps the log: one for each that runs at once, taken again by the next.

An exporter that died leaves its hold to end by itself, minutes later, and a queue has 64 at most:
were each start a name of its own, one that is restarted in a loop would use them up. One name for
all is none either: who is done would end the hold of another. So the names lie in the export,
`_dledger/holders/0` and so on, and whoever locks such a file has its name; the lock ends with the
process, however that ends. Names are drawn, for a folder of the same path on another host is
another export's; and they go by the file as well, for a copy of a folder is another export, too.
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
"""Exporters of one folder at once that have a name to come back to."""
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
        """Leave the name to the next."""
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
            except (OSError, ExportError):  # nothing hangs on it but how soon holds end
                return ""
            if name:
                return name
        return ""

    def _locked(self, path: Path) -> str:
        """Return a file's name if nobody has it; empty: somebody has, or it is none."""
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
