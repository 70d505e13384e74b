"""How an error leaves towards Spark: as text, for Spark passes on nothing else of it.

Owns: the code in front, and the remedy for what clusters say of themselves. Not: the sentences
about options and offsets, which name value and remedy where they are raised.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from dledger_client.reading.folders import FolderError
from dledger_proto.errors import Code, DledgerError

_REACH: Final = (
    "is the cluster running, and does `endpoints` name it, as driver and executors see it?"
)
_REMEDIES: Final = {
    Code.UNAVAILABLE: _REACH,
    Code.NOT_PROPOSED: _REACH,
    Code.NO_LEADER: "look at: dledger status",
    Code.TOPIC_NOT_FOUND: "see: dledger topic list",
    Code.TOO_MANY_HOLDS: "other jobs hold the queue: wait until theirs end, after their holdMs, or "
    "give a holdOwner of your own to those that are repeated",
}


class DledgerReadError(Exception):
    """A read failed. The text begins with a stable code, `DLEDGER_...`."""


@contextmanager
def told() -> Generator[None]:
    """Turn our errors into DledgerReadError; for whatever Spark calls."""
    try:
        yield
    except DledgerError as error:
        remedy = f"; {_REMEDIES[error.code]}" if error.code in _REMEDIES else ""
        raise DledgerReadError(f"DLEDGER_{error.code.name}: {error.detail}{remedy}") from error
    except FolderError as error:
        raise DledgerReadError(f"DLEDGER_{error}") from error
    except ValueError as error:  # of addresses and connection settings
        raise DledgerReadError(f"DLEDGER_INVALID_ARGUMENT: {error}") from error
