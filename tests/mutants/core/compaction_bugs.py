"""Known bugs of compaction: the last message of a key is lost, or a deleted key comes back."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

COMMAND: Final = "unit.compaction.test_compact"
LEADER: Final = "unit.compaction.test_compacting"
WORLDS: Final = "unit.compaction.test_model.test_a_dozen_worlds"
REWRITE: Final = "dledger.state.queues.compact:Compact._rewrite"
PIECES: Final = "dledger.state.queues.compact:_pieces"
LEFT: Final = "dledger_broker.compacting.superseded:Comparison.left_of"

COMPACTION_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "compacts-what-is-pinned",
        "a record goes that a retry, a timer or a dead letter refers to (I20)",
        [Edit(REWRITE, "if state.references.is_pinned(span.position):", "if False:")],
        [f"{COMMAND}.test_what_somebody_refers_to_stays_whole", WORLDS],
    ),
    Mutant(
        "compacts-above-a-hold",
        "a record goes that a reader holds (S52)",
        [Edit(REWRITE, "if min(held, default=self.stop) < self.stop:", "if False:")],
        [f"{LEADER}.test_a_hold_that_comes_meanwhile_keeps_what_is_above_it"],
    ),
    Mutant(
        "compacts-a-row-that-has-changed",
        "a command that is late cuts a row that an earlier one has cut",
        [Edit(REWRITE, "is_changed = count != span.record_count or", "is_changed = False and")],
        [f"{COMMAND}.test_a_row_that_has_changed_since_is_looked_at_again"],
    ),
    Mutant(
        "compacts-the-newest-block",
        "the block that appends go on in is rewritten",
        [Edit(REWRITE, "self.stop <= queue.block_base:", "self.stop <= queue.maximum:")],
        [f"{COMMAND}.test_the_newest_block_stays_as_it_is"],
    ),
    Mutant(
        "compacts-with-unchecked-bytes",
        "what a leader brings as a run is taken whatever it is",
        [
            Edit(
                PIECES,
                'check_batch(run.batch, Root(b"", run.position, 0, len(run.batch), queue.id, '
                "count))",
                "pass",
            )
        ],
        [f"{COMMAND}.test_a_run_of_other_bytes_is_refused"],
    ),
    Mutant(
        "compacted-run-changes-its-offset",
        "what stays of a batch moves to the front of its offsets (D6)",
        [
            Edit(
                PIECES,
                "base_offset=span.base_offset + first, position=run.position",
                "base_offset=span.base_offset + at, position=run.position",
            )
        ],
        [f"{COMMAND}.test_what_stays_keeps_its_offset_and_what_goes_is_named", WORLDS],
    ),
    Mutant(
        "place-of-the-minimum-goes-back",
        "gone rows are joined over the minimum, and a pass of carrying misses the queue (D7)",
        [Edit("dledger.state.queues.compact:joined", "and not holds_minimum", "")],
        [f"{COMMAND}.test_the_row_of_the_minimum_begins_anew", WORLDS],
    ),
    Mutant(
        "names-forgotten-at-a-restart",
        "after a restart a run is read where its batch was",
        [
            Edit(
                "dledger.state.queues.copies:Copies.__init__",
                "-1 if value is None else COPY_VALUE.unpack(value)[0]",
                "-1",
            )
        ],
        [WORLDS],
    ),
    Mutant(
        "key-index-loses-runs",
        "a batch that was cut is taken for trimmed as soon as its first records are",
        [
            Edit(
                "dledger.state.queues.table:QueueTable.first_batch",
                "return max(first - BATCH_RECORDS_MAX, 0)",
                "return first",
            )
        ],
        [f"{COMMAND}.test_the_key_index_forgets_what_is_gone_and_keeps_what_is_left"],
    ),
    Mutant(
        "failure-of-what-is-gone",
        "a consumer that fails a record which compaction deleted refers to bytes that are gone",
        [
            Edit(
                "dledger.state.progress.failures:FailRecords._of_waiting",
                "if state.queues.row_at(queue, failed.offset).is_gone:",
                "if False:",
            )
        ],
        [f"{COMMAND}.test_a_failure_of_what_is_gone"],
    ),
    Mutant(
        "compacted-topic-takes-no-key",
        "a message without a key is taken, and never goes",
        [
            Edit(
                "dledger.state.queues.append:Appender._append",
                "if topic.is_compacted and (scheduled or not _have_one_key(header, payload)):",
                "if False:",
            )
        ],
        [f"{COMMAND}.test_each_message_needs_one_key_and_none_may_wait"],
    ),
    Mutant(
        "last-of-a-key-goes",
        "the newest record of a key goes with those that it supersedes",
        [Edit(LEFT, "self.newest.get(key, offset) <= offset", "self.newest.get(key, -1) < offset")],
        [f"{LEADER}.test_the_last_record_of_each_key_stays", WORLDS],
    ),
    Mutant(
        "tombstone-goes-at-once",
        "readers that are behind never see that a key was deleted",
        [
            Edit(
                LEFT,
                "may_drop_tombstones = span.store_time_ms <= self.tombstones_until_ms",
                "may_drop_tombstones = True",
            )
        ],
        [f"{LEADER}.test_a_tombstone_goes_after_its_time_and_its_key_stays_deleted", WORLDS],
    ),
    Mutant(
        "deleted-key-is-back",
        "a tombstone goes although an older record of its key is still referred to",
        [Edit(LEFT, "is_over and key not in self.stuck", "is_over")],
        [f"{LEADER}.test_a_tombstone_stays_as_long_as_an_older_record_of_its_key", WORLDS],
    ),
    Mutant(
        "key-of-a-timer-is-back",
        "a tombstone goes although a timer brought an older record of its key",
        [Edit(LEFT, "self._keep_tombstones_of(keys.others)", "pass")],
        [f"{LEADER}.test_a_tombstone_stays_as_long_as_a_record_that_nobody_compares"],
    ),
    Mutant(
        "left-record-is-forgotten",
        "the cleaned offset passes a record that had to stay: it is never compared again",
        [
            Edit(
                "dledger_broker.compacting.compacting:Compacting._pass",
                "done = min(comparison.cleaned, end)",
                "done = end",
            )
        ],
        [f"{LEADER}.test_a_tombstone_stays_as_long_as_an_older_record_of_its_key", WORLDS],
    ),
    Mutant(
        "pass-forgets-what-it-left",
        "a pass that goes on after many keys lets the tombstone of a record go that it has left",
        [
            Edit(
                "dledger_broker.compacting.compacting:Compacting._pass",
                "comparison.newest.clear()",
                "comparison.newest.clear(); comparison.stuck.clear()",
            )
        ],
        [f"{LEADER}.test_what_is_left_does_not_stop_passes_at_the_same_key", WORLDS],
    ),
    Mutant(
        "several-keys-are-one",
        "a record with two keys is superseded by one that has only the first",
        [
            Edit(
                "dledger_broker.compacting.superseded:keys_of",
                "is_compared = len(keys) == 1 and",
                "is_compared = bool(keys) and",
            )
        ],
        [f"{LEADER}.test_records_without_a_key_of_their_own_stay"],
    ),
)
