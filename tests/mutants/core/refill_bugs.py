"""Known bugs of refills: what a member without data, or too far behind, is given (D18)."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

CUTS: Final = "unit.refill.test_refill_power_cuts"
GIVING: Final = "unit.broker.test_giving"
REFILLS: Final = "test_refills"
DUMP: Final = "unit.refill.test_state_dump"
ABSENT: Final = "unit.raft.test_absent"

REFILL_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "refill-forgets-what-was-acknowledged",
        "a refill that ends before the own log replaces it",
        [
            Edit(
                "dledger.refill.staging:Staging.complete",
                "if log.last_index < own_last_index:",
                "if False:",
            )
        ],
        [f"{CUTS}.test_what_is_not_whole_is_refused_and_says_why"],
    ),
    Mutant(
        "refilled-state-of-another-log",
        "a refill is used although its state has applied more than its log holds",
        [
            Edit(
                "dledger.refill.staging:Staging.check_state",
                "if not log.first_index - 1 <= self._applied <= log.last_index:",
                "if False:",
            )
        ],
        [f"{CUTS}.test_what_is_not_whole_is_refused_and_says_why"],
    ),
    Mutant(
        "refill-ends-quarantine",
        "a member that was refilled without data of its own is trusted at once",
        [
            Edit(
                "dledger.refill.install:_note_term",
                "new = replace(new, quarantined=True)",
                "pass",
            )
        ],
        [f"{CUTS}.test_a_member_without_data_ends_up_in_quarantine"],
    ),
    Mutant(
        "refill-forgets-the-term",
        "the hard state of a refilled member is behind its log",
        [Edit("dledger.refill.install:_note_term", "if term > state.term:", "if False:")],
        [f"{CUTS}.test_a_member_without_data_ends_up_in_quarantine"],
    ),
    Mutant(
        "refill-marked-before-it-is-synced",
        "a refill is marked as whole while its state may still be lost",
        [
            Edit(
                "dledger.refill.staging:Staging.complete",
                "file.fdatasync()",
                "pass",
            )
        ],
        [f"{CUTS}.test_power_may_end_a_refill_at_any_step"],
    ),
    Mutant(
        "refill-ends-before-the-state-is-there",
        "power that ends an installation leaves the new log with the old state",
        [
            Edit("dledger.refill.install:install", "_replace_state(folder, open_store)", "pass"),
            Edit(
                "dledger.refill.install:install",
                "    fs.unlink(emptied)\n    fs.sync_folder(path)\n    remove_folder(fs, path)",
                "    fs.unlink(emptied)\n    fs.sync_folder(path)\n"
                "    _replace_state(folder, open_store)\n    remove_folder(fs, path)",
            ),
        ],
        [f"{CUTS}.test_power_may_end_a_refill_at_any_step"],
    ),
    Mutant(
        "refill-gone-on-with-after-it-was-installed",
        "what was staged shares its files with the log of the member",
        [
            Edit(
                "dledger.refill.install:install",
                'for name in fs.names(staged):\n        fs.unlink(f"{staged}/{name}")',
                'for name in ():\n        fs.unlink(f"{staged}/{name}")',
            ),
            Edit(
                "dledger.refill.install:install",
                "remove_folder(fs, path)\n    end =",
                "end =",
            ),
        ],
        [f"{CUTS}.test_power_may_end_a_refill_at_any_step"],
    ),
    Mutant(
        "old-rows-stay-beside-the-refilled-state",
        "rows of the state before survive a refill",
        [Edit("dledger.refill.install:_replace_state", "store.delete(key)", "pass")],
        [f"{CUTS}.test_power_may_end_a_refill_at_any_step"],
    ),
    Mutant(
        "dump-ends-too-early-unseen",
        "the state of a refill may lack rows at its end",
        [
            Edit(
                "dledger.refill.state_dump:read_dump",
                '!= (count, struct.pack("<I", crc))',
                "== ()",
            )
        ],
        [f"{DUMP}.test_any_flipped_byte_is_found"],
    ),
    Mutant(
        "entries-given-that-are-not-committed",
        "a giver sends what no majority has",
        [
            Edit(
                "dledger_broker.refill.giving:Giving._send_log",
                "last = min(view.host.group.commit_index, log.durable_index)",
                "last = log.last_index",
            )
        ],
        [f"{GIVING}.test_only_committed_entries_leave"],
    ),
    Mutant(
        "state-given-before-its-log",
        "the state of a refill is newer than the log that comes with it, and nobody looks",
        [
            Edit(
                "dledger_broker.refill.receiving:Refill._gather",
                "await self._read_log(giver)\n        why_not",
                "why_not",
            ),
            Edit(
                "dledger.refill.staging:Staging.check_state",
                "if not log.first_index - 1 <= self._applied <= log.last_index:",
                "if False:",
            ),
        ],
        [f"{REFILLS}.test_a_wiped_member_is_refilled_under_load"],
    ),
    Mutant(
        "refill-sticks-to-what-was-trimmed",
        "a refill whose next entries were trimmed everywhere asks for them without end",
        [
            Edit(
                "dledger_broker.refill.receiving:Refill._read_log",
                "if error.code is Code.HEAD_TRIMMED and",
                "if False and",
            )
        ],
        [f"{REFILLS}.test_a_refill_begins_anew_when_what_follows_was_trimmed"],
    ),
    Mutant(
        "the-lost-keep-the-head",
        "a member that only a refill can help keeps the log of all others from being trimmed",
        [
            Edit(
                "dledger.raft.replication.leader:Replication.trim_floor",
                "if not progress.is_below_head and",
                "if",
            )
        ],
        [f"{ABSENT}.test_a_member_that_is_below_the_head_needs_a_refill_and_keeps_nothing"],
    ),
    Mutant(
        "the-absent-keep-the-head",
        "a member that is away keeps the log of all others without end",
        [
            Edit(
                "dledger.raft.replication.leader:Replication.trim_floor",
                "max(waited_for, log.segment_start(kept_from))",
                "waited_for",
            )
        ],
        [f"{ABSENT}.test_a_member_that_is_away_keeps_so_many_bytes_and_no_more"],
    ),
    Mutant(
        "refill-never-asked-for",
        "a member below the head of its leader waits for entries that nobody has",
        [
            Edit(
                "dledger.raft.replication.follower:Following.is_below_head",
                "self._mismatches >= BELOW_HEAD_MISMATCHES",
                "False",
            )
        ],
        [f"{ABSENT}.test_a_member_that_is_below_the_head_needs_a_refill_and_keeps_nothing"],
    ),
)
