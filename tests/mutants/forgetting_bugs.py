"""Known bugs of what is forgotten in steps: producers that expired, and deleted topics."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

STATE: Final = "dledger.state"
FORGETTING: Final = "test_forgetting"

FORGETTING_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "half-forgotten-producer-writes",
        "a producer of which some rows are gone already goes on in its epoch (I9)",
        [
            Edit(
                f"{STATE}.producers:ProducerTable.find",
                "producer is None or producer.is_half_forgotten",
                "producer is None",
            )
        ],
        [f"{FORGETTING}.test_a_half_forgotten_producer_stores_nothing"],
    ),
    Mutant(
        "half-forgotten-producer-tells-half",
        "who registers a half forgotten producer is told the rows that are left as all (D11)",
        [
            Edit(
                f"{STATE}.producers:ProducerTable.register",
                "min(max(first_epoch, producer.epoch + 2), EPOCH_MAX)",
                "producer.epoch + 1",
            )
        ],
        [f"{FORGETTING}.test_a_half_forgotten_producer_that_registers_begins_above_its_past"],
    ),
    Mutant(
        "forgetting-goes-on-where-it-was",
        "what a producer wrote since it came back stays when it is forgotten again",
        [Edit(f"{STATE}.producers:ProducerTable.register", 'self._forget_at = b""', "pass")],
        [f"{FORGETTING}.test_a_producer_is_forgotten_whole_however_often_it_came_back"],
    ),
    Mutant(
        "producers-keep-deleted-topics",
        "the deletion of a topic leaves what producers hold of it",
        [
            Edit(
                f"{STATE}.machine:StateMachine._import_or_delete",
                "self._sweep.start()",
                "pass",
            )
        ],
        [f"{FORGETTING}.test_nothing_of_a_deleted_topic_stays_with_a_producer"],
    ),
)
