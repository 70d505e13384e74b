"""Errors as Spark gets them: as text, for Spark passes on nothing else of an error.

Owns: the code in front of the text and the remedy behind it. Not: the sentences about options and
offsets, which name value and remedy where they are raised.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from dledger_client.reading.folders import FolderError
from dledger_proto.errors import MEANINGS, Code, DledgerError
from dledger_proto.remedies import remedy_of

ADDRESSES: Final = "endpoints, as driver and executors see it,"
AGAIN: Final = (
    "call load() again if the plan may be old: Spark keeps the plan of a DataFrame and of a view"
)
_OF_PLANS: Final = (Code.OFFSET_OUT_OF_RANGE, Code.TOPIC_NOT_FOUND, Code.QUEUE_NOT_FOUND)
"""Errors of a plan whose queues were trimmed or deleted since."""
_OF_WRITES: Final = (Code.UNKNOWN_OUTCOME, Code.OFFSET_BEHIND)
"""Codes whose remedies do not help a reader."""


class DledgerReadError(Exception):
    """A read failed. The text begins with a stable code, `DLEDGER_...`."""


@contextmanager
def told(*, is_plan_kept: bool = False) -> Generator[None]:
    """Turn the client's errors into DledgerReadError, around everything that Spark calls.

    `is_plan_kept`: the code runs in a task, whose plan may have been made long ago.
    """
    try:
        yield
    except DledgerError as error:
        said = [error.detail or MEANINGS[error.code].sentence]
        if error.code not in _OF_WRITES:
            said.append(remedy_of(error.code, ADDRESSES))
        if is_plan_kept and error.code in _OF_PLANS:
            said.append(AGAIN)
        sentence = "; ".join(filter(None, said))
        raise DledgerReadError(f"DLEDGER_{error.code.name}: {sentence}") from error
    except FolderError as error:
        raise DledgerReadError(f"DLEDGER_{error}") from error
    except pa.ArrowException:  # some are ValueErrors
        raise
    except ValueError as error:  # of addresses and connection settings
        raise DledgerReadError(f"DLEDGER_INVALID_ARGUMENT: {error}") from error
