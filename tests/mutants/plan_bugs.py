"""Known bugs of plans for bulk reads."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

PLAN: Final = "dledger_client.reading.plan"
SCRIPTS: Final = "test_plans"

PLAN_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "plan-passes-over-lost-data",
        "a read begins at what is left, and does not say that something is gone",
        [Edit(f"{PLAN}:resolve", "if fail_on_data_loss:", "if False:")],
        [f"{SCRIPTS}.test_lost_data_is_never_passed_over_in_silence"],
    ),
    Mutant(
        "plan-cuts-off-the-end",
        "the records behind the last cut are in no range",
        [Edit(f"{PLAN}:cut", "            end,\n        ]", "        ]")],
        [f"{SCRIPTS}.test_no_record_is_in_two_ranges_or_in_none"],
    ),
)
