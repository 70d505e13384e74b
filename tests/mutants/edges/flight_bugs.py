"""Known bugs of the flight recorder: a record that is lost, or grows without end."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

UNIT: Final = "unit.flight.test_recorder"

FLIGHT_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "flight-unbounded",
        "the flight recorder counts events and not their bytes",
        [
            Edit(
                "dledger_broker.flight.recorder:FlightRecorder.note",
                " or self._bytes > self._bytes_max",
                "",
            )
        ],
        [f"{UNIT}.test_bytes_are_bounded_however_long_the_texts_are"],
    ),
    Mutant(
        "flight-flooded",
        "what happens with every entry pushes an election out of the flight record",
        [
            Edit(
                "dledger_broker.flight.recorder:FlightRecorder.note",
                "if name in FREQUENT else 0",
                "if not name else 0",
            )
        ],
        [f"{UNIT}.test_what_happens_with_every_entry_pushes_nothing_out"],
    ),
    Mutant(
        "flight-ends-at-damage",
        "a damaged line of a flight record hides those behind it",
        [
            Edit(
                "dledger_broker.flight.record_file:parse_record",
                "record.damaged_lines += 1",
                "record.damaged_lines += 1\n                break",
            )
        ],
        [f"{UNIT}.test_a_damaged_line_hides_no_other"],
    ),
)
