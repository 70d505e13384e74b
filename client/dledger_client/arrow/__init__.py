"""Records by columns: batches of the wire as Arrow record batches. Needs the extra `arrow`."""

from dledger_client.arrow.decode import Decoder, Source, Span
from dledger_client.arrow.schema import (
    COLUMNS,
    DEFAULT_COLUMNS,
    choose_columns,
    ddl_of,
    schema_of,
)

__all__ = [
    "COLUMNS",
    "DEFAULT_COLUMNS",
    "Decoder",
    "Source",
    "Span",
    "choose_columns",
    "ddl_of",
    "schema_of",
]
