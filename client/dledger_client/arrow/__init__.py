"""Records by columns: batches of the wire as Arrow record batches. Needs the extra `arrow`.

columns     The columns of several batches joined
decode      Batches of the wire as Arrow record batches: checked, cut to offsets, in portions
properties  The properties of many records at once: tag, keys, and a map of the others
schema      The columns of records: names, types, defaults. Pure
"""

from dledger_client.arrow.decode import Decoder, ExpectedQueue, Span
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
    "ExpectedQueue",
    "Span",
    "choose_columns",
    "ddl_of",
    "schema_of",
]
