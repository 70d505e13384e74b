"""`dledger inspect` and rows of queues whose records are compacted."""

from dledger.state.queues.table import KIND_BATCH, KIND_REFERENCE, ROW
from dledger.state.tables import KEY_U32, KEY_U64, PREFIX, Table
from dledger_offline.state import describe_row

GONE = 3


def test_a_row_without_a_batch_is_gone() -> None:
    key = PREFIX[Table.QUEUE_ROWS] + bytes(16) + KEY_U32.pack(1) + KEY_U64.pack(7)
    rows = [
        ROW.pack(GONE, 0, 93, 0, 7, 4_096, 1_000),
        ROW.pack(KIND_BATCH, 0, 1, 120, 100, 9_000, 1_001),
        ROW.pack(KIND_REFERENCE, 2, 1, 300, 101, 5_000, 1_002),
    ]
    shown = describe_row(Table.QUEUE_ROWS, key, b"".join(rows))
    assert not shown.problem
    assert shown.value["rows"] == [
        "offset 7 records 0+93 at 4096 size 0 time 1000 gone",
        "offset 100 records 0+1 at 9000 size 120 time 1001",
        "offset 101 records 2+1 at 5000 size 300 time 1002 reference",
    ]
