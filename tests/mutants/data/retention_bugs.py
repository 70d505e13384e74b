"""Known bugs of retention: what is deleted too early, or although somebody needs it (S60)."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

EXPIRE: Final = "dledger.state.queues.expire:ExpireRecords"
STATE: Final = "unit.state.test_expire"
CARRY: Final = "unit.state.test_carry"
DUTY: Final = "unit.broker.test_retention"

RETENTION_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "expired-by-the-leaders-word",
        "apply follows the leader, who may propose by a wrong clock (S60, D8)",
        [
            Edit(
                f"{EXPIRE}._allowed",
                "allowed = state.queues.offset_by_time(queue, time_ms - kept_ms)",
                "allowed = queue.maximum",
            )
        ],
        [f"{STATE}.test_records_go_when_they_are_older_than_the_retention"],
    ),
    Mutant(
        "expired-above-a-hold",
        "what a reader holds goes all the same when it is old enough (S52)",
        [
            Edit(
                f"{EXPIRE}._expire",
                "result = Trim(*queue.id, offset).apply(state, entry)",
                "state.queues.raise_minimum(queue, offset)\n        result = Trimmed(offset)",
            )
        ],
        [f"{STATE}.test_a_hold_keeps_what_is_expired"],
    ),
    Mutant(
        "expired-although-kept-for-ever",
        "a topic without a bound loses what a leader names (S60)",
        [
            Edit(
                f"{EXPIRE}._allowed",
                "if kept_ms == RETENTION_FOREVER:\n                return queue.minimum",
                "if kept_ms == RETENTION_FOREVER:\n                return queue.maximum",
            )
        ],
        [f"{STATE}.test_a_topic_that_keeps_all_keeps_all"],
    ),
    Mutant(
        "retries-expire",
        "retries that wait, and dead letters, go by the cluster's retention (I20, I24)",
        [
            Edit(
                "dledger.state.queues.expire:effective",
                "if topic.name.startswith(GROUP_TOPIC_PREFIXES) or topic.is_compacted:",
                "if False:",
            )
        ],
        [f"{STATE}.test_retries_and_dead_letters_keep_to_no_bound"],
    ),
    Mutant(
        "no-bound-of-size-taken-for-one",
        "a queue without a bound of size is emptied by a command that counted by none (S60)",
        [
            Edit(
                f"{EXPIRE}._allowed",
                "bound.size == wanted.size != RETENTION_FOREVER",
                "bound.size == wanted.size",
            )
        ],
        [f"{STATE}.test_a_topic_that_keeps_all_keeps_all"],
    ),
    Mutant(
        "low-disk-deletes-what-is-kept-for-ever",
        "a low disk takes the messages of a topic that keeps everything (S60)",
        [
            Edit(
                f"{EXPIRE}._allowed",
                "return queue.minimum if bound == KEEPS_ALL else queue.maximum",
                "return queue.maximum",
            )
        ],
        [f"{STATE}.test_a_topic_that_keeps_all_keeps_all"],
    ),
    Mutant(
        "retries-go-before-they-are-done",
        "a retry that waits for its consumer group is deleted after ten minutes (I20)",
        [
            Edit(
                f"{EXPIRE}._allowed",
                "return min(allowed, state.finished_retries(topic, queue))",
                "return allowed",
            )
        ],
        [f"{STATE}.test_a_retry_that_is_not_done_stays"],
    ),
    Mutant(
        "cut-below-its-bound",
        "a queue is cut although less than its bound of size would be left (S60)",
        [
            Edit(
                "dledger_broker.group.queue_sizes:QueueSizes._count",
                "measured.total - measured.chunks[0][1] >= measured.bound",
                "measured.total >= measured.bound",
            )
        ],
        [f"{DUTY}.test_a_queue_is_cut_to_its_bound_of_size"],
    ),
    Mutant(
        "carry-leaves-a-batch-out",
        "a pass goes on although a batch that is needed was not copied",
        [
            Edit(
                "dledger.state.queues.carry:CarryForward.apply",
                "root.position not in needed",
                "root.position in brought",
            ),
        ],
        [f"{CARRY}.test_a_stretch_that_leaves_a_batch_out_is_refused"],
    ),
    Mutant(
        "carry-lets-go-early",
        "the log is let go when a pass begins, not at its end",
        [
            Edit(
                "dledger.state.queues.copies:Copies.note",
                "Carried(self.carried.horizon, target, cursor)",
                "Carried(target, target, cursor)",
            ),
        ],
        [f"{CARRY}.test_only_the_next_stretch_of_the_pass_is_taken"],
    ),
    Mutant(
        "carry-takes-any-bytes",
        "the checksum of a copy is not looked at",
        [
            Edit(
                "dledger.state.queues.carry:check_batch",
                "if not is_sound or not is_its:",
                "if not is_its:",
            ),
        ],
        [f"{CARRY}.test_a_damaged_copy_is_refused"],
    ),
    Mutant(
        "carry-mistakes-the-place",
        "a copy is looked for in the first command of its entry",
        [
            Edit(
                "dledger.state.machine:StateMachine._run",
                "entry.payloads[at : at + 1], starts=[entry.starts[at]]",
                "entry.payloads[:1], starts=[entry.starts[0]]",
            ),
        ],
        [f"{CARRY}.test_commands_of_one_entry_know_their_own_bytes"],
    ),
    Mutant(
        "carry-forgets-pins",
        "what only timers, retries and dead letters need is not copied",
        [
            Edit(
                "dledger.state.queues.carry:walk",
                "yield from _pinned(state, cursor, target)",
                "yield from ()",
            ),
        ],
        [f"{CARRY}.test_what_a_timer_holds_is_carried_and_fires"],
    ),
    Mutant(
        "carry-forgets-half-a-batch",
        "a batch that was trimmed in its middle is not copied",
        [
            Edit(
                "dledger.state.queues.carry:_in_queues",
                "at = queue.minimum",
                "at = queue.minimum + (queue.minimum > 0)",
            ),
        ],
        [f"{CARRY}.test_a_batch_that_was_trimmed_in_its_middle_is_carried"],
    ),
    Mutant(
        "carry-drops-a-copy",
        "the place of an older copy stays, and takes the newer one with it",
        [
            Edit(
                "dledger.state.queues.copies:Copies.record",
                "if value is not None:",
                "if value is None and value:",
            ),
        ],
        [f"{CARRY}.test_a_second_pass_carries_the_copies_and_drops_those_that_nobody_needs"],
    ),
    Mutant(
        "carry-takes-an-old-stretch",
        "a stretch of another pass moves the cursor",
        [
            Edit(
                "dledger.state.queues.carry:CarryForward.apply",
                "(self.target, self.cursor) != carried[1:]",
                "self.target > 1 << 60",
            ),
        ],
        [f"{CARRY}.test_only_the_next_stretch_of_the_pass_is_taken"],
    ),
    Mutant(
        "carried-batch-read-at-its-position",
        "a carried batch is read where it lay before",
        [
            Edit(
                "dledger.state.queues.copies:Copies.place",
                "return copy",
                "return position",
            ),
        ],
        [f"{CARRY}.test_an_old_batch_lies_at_the_end_of_the_log_under_its_old_name"],
    ),
    Mutant(
        "carried-batch-is-gone-for-a-reader",
        "a reader that looked before a batch moved is told that it is trimmed",
        [
            Edit(
                "dledger_broker.read.frames:Frames._outcome",
                "isinstance(found, SpanGone)",
                "isinstance(found, ZeroDivisionError)",
            ),
        ],
        ["unit.broker.test_fetch_carried.test_a_batch_that_moves_before_it_is_read_is_read_again"],
    ),
    Mutant(
        "carried-pin-keeps-a-low-disk-full",
        "what was carried forward keeps a low disk from deleting early",
        [
            Edit(
                "dledger.state.queries:Queries.is_pinned_below",
                "(horizon, 0)",
                "(0, 0)",
            ),
        ],
        [
            "unit.broker.test_retention.test_what_was_carried_forward_does_not_keep_a_low_disk_from_deleting"
        ],
    ),
    Mutant(
        "carried-records-deleted-early",
        "a low disk deletes records that were carried out of the segment in its way",
        [
            Edit(
                "dledger.state.queries:Queries.beginning_below",
                "begins >= horizon or",
                "True or",
            ),
        ],
        [
            "unit.broker.test_retention.test_what_was_carried_forward_does_not_keep_a_low_disk_from_deleting"
        ],
    ),
    Mutant(
        "carry-takes-a-position-twice",
        "of two copies of one position the first is noted and the last one checked",
        [
            Edit(
                "dledger.state.queues.carry:CarryForward.apply",
                "len(brought) != len(self.copies)",
                "False",
            ),
        ],
        ["unit.state.test_carry.test_a_position_that_occurs_twice_is_refused"],
    ),
    Mutant(
        "carry-fills-a-full-disk",
        "a pass begins on a disk that has no room for its copies",
        [
            Edit(
                "dledger_broker.carrying.carrying:Carrying._worth",
                "view.log.space.can_spare(chance.budget) and",
                "",
            ),
        ],
        ["unit.broker.test_carrying.test_a_disk_without_room_for_the_copies_begins_no_pass"],
    ),
)
