"""Known bugs of what is acknowledged before its sync, and of the idle log's checkpoint."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

FLUSH: Final = "test_flush"
DAMAGE: Final = "unit.log.test_damage"
STORAGE: Final = "dledger.raft.durability:Durability"

LOG_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "async-acknowledges-before-the-write",
        "with flush: async an entry is acknowledged while it is in memory only",
        [Edit(f"{STORAGE}.covered_index", "self._log.written_index", "self._log.last_index")],
        [f"{FLUSH}.test_async_a_kill_of_all_members_loses_nothing_acknowledged"],
    ),
    Mutant(
        "async-never-syncs",
        "with flush: async no sync follows in the background",
        [Edit(f"{STORAGE}._flush_at", "self._unsynced_since + self._flush_interval", "math.inf")],
        [f"{FLUSH}.test_async_syncs_in_the_background"],
    ),
    Mutant(
        "stamps-claim-what-is-only-written",
        "an entry's stamp calls synced what is written, so a torn tail reads as damage",
        [
            Edit(
                "dledger.log.writing.rounds:WriteRounds._plan_entries",
                "state.durable.position,",
                "state.written.position,",
            )
        ],
        [f"{FLUSH}.test_async_a_power_cut_loses_the_unsynced_and_the_member_goes_on"],
    ),
    Mutant(
        "no-checkpoint-when-idle",
        "nothing proves the last round synced: damage in it is cut as a torn tail",
        [
            Edit(
                f"{STORAGE}._checkpoint_at",
                "return self._idle_since + CHECKPOINT_IDLE_SECONDS",
                "return math.inf",
            )
        ],
        [f"{FLUSH}.test_an_idle_log_shows_damage_in_its_last_round"],
    ),
    Mutant(
        "a-later-version-is-a-torn-tail",
        "a member of an older version cuts what a newer one acknowledged (I15)",
        [
            Edit(
                "dledger_proto.entry:parse_entry_header",
                "raise NewerEntry(",
                "raise CorruptEntry(",
            )
        ],
        [f"{DAMAGE}.test_a_tail_of_a_later_version_is_not_cut"],
    ),
)
