"""Known bugs of repairs: what is put in the place of a damaged entry, and when (I15)."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

SCAN: Final = "unit.repair.test_scan"
MEND: Final = "unit.repair.test_mend"
GIVING: Final = "unit.broker.test_giving"
REPAIR: Final = "test_repair"

REPAIR_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "entry-of-another-chain-mends",
        "an entry that was never committed enters in the place of a damaged one",
        [
            Edit(
                "dledger.repair.mend:fitting",
                "if found != wanted:",
                "if found[:2] != wanted[:2]:",
            )
        ],
        [f"{MEND}.test_an_entry_of_another_chain_does_not_fit"],
    ),
    Mutant(
        "mended-range-is-too-long",
        "a sound entry behind a damage is taken for a part of it",
        [
            Edit(
                "dledger.repair.scan:_Scan._behind_damage",
                "LogIndex(following.index - 1)",
                "LogIndex(following.index)",
            )
        ],
        [f"{SCAN}.test_a_damaged_header_is_told_from_its_neighbours:24"],
    ),
    Mutant(
        "more-than-the-damage-is-written",
        "entries beside the damaged ones are written as well",
        [Edit("dledger.repair.mend:fitting", "if found != wanted:", "if False:")],
        [f"{MEND}.test_exactly_the_damaged_entries_fit"],
    ),
    Mutant(
        "damaged-entry-given",
        "a peer sends its own damaged bytes for a damage (I15)",
        [
            Edit(
                "dledger_broker.refill.single_entries:_piece",
                "header = decode_entry(data, at, check_payloads=True).header",
                "header = decode_entry(data, at, check_payloads=False).header",
            )
        ],
        [f"{GIVING}.test_a_damaged_entry_is_not_given"],
    ),
    Mutant(
        "uncommitted-entry-given-for-a-damage",
        "a peer gives an entry that may still be cut",
        [
            Edit(
                "dledger_broker.refill.single_entries:entries_of",
                "if asked.last_index > last:",
                "if False:",
            )
        ],
        [f"{GIVING}.test_only_committed_entries_are_given_for_a_damage"],
    ),
    Mutant(
        "mended-without-a-sync",
        "what counts as mended is lost with the power",
        [Edit("dledger.repair.mend:_write", "file.fdatasync()", "pass")],
        [f"{MEND}.test_power_may_end_a_repair_at_any_step"],
    ),
    Mutant(
        "uncommitted-tail-mended",
        "entries that may still be cut are mended from a peer that has others",
        [
            Edit(
                "dledger.log.commit_log:CommitLog.parts",
                "committed = min(committed, self.durable_index)",
                "committed = self.durable_index",
            )
        ],
        [f"{SCAN}.test_what_is_not_committed_is_not_looked_at"],
    ),
    Mutant(
        "trimmed-segment-made-again",
        "a repair that comes too late leaves a file that belongs to nothing",
        [Edit("dledger.repair.mend:_write", "create=is_new", "create=True")],
        [f"{MEND}.test_a_trimmed_file_is_not_made_again"],
    ),
    Mutant(
        "stamps-are-not-scrubbed",
        "a damaged local stamp is found by the start that needs it, and refuses it",
        [
            Edit(
                "dledger.repair.scan:_Scan._is_stamped",
                "if check_local(header, salt):",
                "if True:",
            )
        ],
        [f"{SCAN}.test_each_flipped_bit_of_each_file_is_found_and_mended"],
    ),
    Mutant(
        "damage-is-only-mended-by-scrubs",
        "a read that meets damage tells nobody, and apply waits for a week",
        [
            Edit(
                "dledger_broker.repair.scrub:Scrub.takes",
                "self.look_at(position)",
                "pass",
            )
        ],
        [f"{REPAIR}.test_apply_waits_for_the_entry_that_it_cannot_read"],
    ),
    Mutant(
        "uncommitted-damage-waits-for-ever",
        "a leader that cannot read what nobody has committed leads on, and nothing is committed",
        [
            Edit(
                "dledger_broker.repair.scrub:Scrub._may_mend",
                "if damage.kind is Kind.ENTRIES:",
                "if False:",
            )
        ],
        [f"{REPAIR}.test_damage_of_what_nobody_has_committed_ends_the_leader"],
    ),
    Mutant(
        "known-damage-is-looked-at-again",
        "members with the same damage ask each other for it without end",
        [
            Edit(
                "dledger_broker.repair.scrub:Scrub.look_at",
                "and not self._is_left(Position(position))",
                "",
            ),
            Edit(
                "dledger_broker.repair.scrub:Scrub._mend_what_waits",
                "if self._view.clock.monotonic() >= self._try_at:",
                "if True:",
            ),
        ],
        [f"{REPAIR}.test_members_with_the_same_damage_do_not_wake_each_other_without_end"],
    ),
    Mutant(
        "slow-scrub-mends-nothing-else",
        "what a read meets, and what was left, waits until a slow scrub has ended",
        [
            Edit(
                "dledger_broker.repair.scrub:Scrub._keep_rate",
                "await self._mend_what_waits()",
                "pass",
            )
        ],
        [f"{REPAIR}.test_what_is_left_is_tried_again_while_a_slow_scrub_is_under_way"],
    ),
    Mutant(
        "leader-that-cannot-apply-leads-on",
        "a leader that waits for a peer to mend its log waits first until all is applied",
        [
            Edit(
                "dledger_broker.repair.scrub:Scrub._give_away",
                "drains=False",
                "drains=True",
            )
        ],
        [f"{REPAIR}.test_a_leader_that_cannot_apply_hands_over"],
    ),
)
