"""How an error leaves towards Spark: as text, for Spark passes on nothing else of it.

Owns: the code in front. Not: the sentences, which name value and remedy where they are raised.
"""

from collections.abc import Generator
from contextlib import contextmanager

from dledger_client.reading.folders import FolderError
from dledger_proto.errors import DledgerError


class DledgerReadError(Exception):
    """A read failed. The text begins with a stable code, `DLEDGER_...`."""


@contextmanager
def told() -> Generator[None]:
    """Turn our errors into DledgerReadError; for whatever Spark calls."""
    try:
        yield
    except DledgerError as error:
        raise DledgerReadError(f"DLEDGER_{error.code.name}: {error.detail}") from error
    except FolderError as error:
        raise DledgerReadError(f"DLEDGER_{error}") from error
    except ValueError as error:  # of addresses and connection settings
        raise DledgerReadError(f"DLEDGER_INVALID_ARGUMENT: {error}") from error
