"""Known bugs of timers, references and pins (D7, D23)."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

TIMERS: Final = "unit.state.test_timers"
TOGETHER: Final = "unit.state.test_firing_together"
FIRING: Final = "unit.broker.test_firing"

TIMER_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "timers-by-wall-clock",
        "a leader whose clock is ahead proposes without end, and nothing fires (D8, D23)",
        [
            Edit(
                "dledger_broker.timers.firing:TimerFiring.run",
                "now_ms = self._view.now_ms",
                "now_ms = self._view.clock.wall_ms()",
            )
        ],
        [f"{FIRING}.test_a_timer_fires_by_the_groups_time_whatever_the_leaders_clock_says"],
    ),
    Mutant(
        "firing-without-rest",
        "a leader that may not fire, as the disk is low, proposes it twenty times a second",
        [
            Edit(
                "dledger_broker.timers.firing:rest_after",
                "return min(REST_SECONDS * (1 << min(failed - 1, 10)), REST_SECONDS_MAX)",
                "return REST_SECONDS",
            )
        ],
        [f"{FIRING}.test_a_leader_that_is_refused_rests_longer_each_time"],
    ),
    Mutant(
        "firing-without-gathering",
        "a leader proposes an entry for each timer, although the next one is due a moment later",
        [
            Edit(
                "dledger_broker.timers.firing:TimerFiring._fire",
                "began + GATHER_SECONDS",
                "began",
            )
        ],
        [f"{FIRING}.test_timers_that_are_due_one_after_the_other_are_gathered"],
    ),
    Mutant(
        "backlog-fired-with-pauses",
        "a leader gathers timers although more are due than one command fires",
        [
            Edit(
                "dledger_broker.timers.firing:TimerFiring._fire",
                "if not fired.more:",
                "if True:",
            )
        ],
        [f"{FIRING}.test_a_backlog_is_fired_without_a_pause"],
    ),
    Mutant(
        "timer-fires-early",
        "a timer fires when its command says so, although the stamp of the entry is earlier",
        [
            Edit(
                "dledger.state.timers.commands:FireTimers.apply",
                "min(self.up_to_ms, entry.time_ms)",
                "self.up_to_ms",
            )
        ],
        [f"{TIMERS}.test_a_command_never_fires_before_the_stamp_of_its_entry"],
    ),
    Mutant(
        "timer-fires-twice",
        "a timer that fired stays, and the same command proposed twice fires it twice",
        [
            Edit(
                "dledger.state.timers.table:TimerTable.take_due",
                "self._remove(keys, due)",
                "return due",
            )
        ],
        [f"{TIMERS}.test_a_command_that_is_proposed_twice_fires_once"],
    ),
    Mutant(
        "delayed-batch-delivered-at-once",
        "a batch with a delivery time goes into its queue when it comes",
        [
            Edit(
                "dledger.state.queues.append:Appender._append",
                "if due_ms > time_ms:",
                "if False:",
            )
        ],
        [f"{TIMERS}.test_a_delayed_batch_is_in_no_queue_until_its_time"],
    ),
    Mutant(
        "delayed-batch-not-sequenced",
        "the repeat of a delayed batch is stored again: a second timer",
        [
            Edit(
                "dledger.state.queues.append:Appender._delay",
                "if progress is not None:",
                "if False:",
            )
        ],
        [f"{TIMERS}.test_a_repeat_of_a_delayed_batch_is_a_duplicate"],
    ),
    Mutant(
        "trim-drops-a-pinned-batch",
        "the log is trimmed above batches that timers and references need (trap 14)",
        [
            Edit(
                "dledger.state.machine:StateMachine._head",
                "min(self._state.queues.head, self._state.references.head)",
                "self._state.queues.head",
            )
        ],
        [f"{TIMERS}.test_the_log_stays_while_a_timer_or_a_reference_needs_it"],
    ),
    Mutant(
        "fired-timer-loses-its-pin",
        "the log is let go when a timer fires, and its reference names nothing",
        [
            Edit(
                "dledger.state.timers.commands:_fire",
                "fired += len(timers)",
                "fired += sum(state.references.unpin(each.reference.position, each.number) is None"
                " for each in timers)",
            )
        ],
        [f"{TIMERS}.test_the_log_stays_while_a_timer_or_a_reference_needs_it"],
    ),
    Mutant(
        "pins-stay-for-good",
        "a reference below the minimum keeps its pin, and the log grows without end",
        [
            Edit(
                "dledger.state.queues.references:References._released",
                "self.unpin(position, number)",
                "pass",
            )
        ],
        [f"{TIMERS}.test_batches_and_references_share_a_queue"],
    ),
    Mutant(
        "trim-frees-a-live-origin",
        "a trim in the middle of a reference frees its origin and its pin",
        [
            Edit(
                "dledger.state.queues.references:References.release_below",
                "stop_offset = self._queues.row_at(queue, queue.minimum).base_offset",
                "stop_offset = queue.minimum",
            )
        ],
        [f"{TIMERS}.test_a_trim_within_a_reference_keeps_its_origin"],
    ),
    Mutant(
        "recall-takes-the-whole-batch",
        "the recall of one record takes the others of its batch along",
        [
            Edit(
                "dledger.state.timers.table:TimerTable.take_out",
                "for start, stop in left:",
                "for start, stop in []:",
            )
        ],
        [f"{TIMERS}.test_a_recalled_message_is_never_delivered_and_others_of_its_batch_are"],
    ),
    Mutant(
        "recall-of-a-fired-timer",
        "a message that was delivered can be recalled: its id is still known",
        [
            Edit(
                "dledger.state.timers.table:TimerTable._remove",
                "self._writer.delete_all(id_keys)",
                "pass",
            )
        ],
        [f"{TIMERS}.test_a_recalled_message_is_never_delivered_and_others_of_its_batch_are"],
    ),
    Mutant(
        "fired-timer-takes-anothers-id",
        "a timer that fires takes the id of a later one along, which nobody can recall then",
        [
            Edit(
                "dledger.state.timers.table:TimerTable._id_keys",
                "if value in timers",
                "if timers",
            )
        ],
        [f"{TOGETHER}.test_a_timer_that_fires_leaves_the_id_of_another_that_waits"],
    ),
    Mutant(
        "fired-timer-keeps-its-id",
        "of timers with consecutive ids that fire together one is still known by its id",
        [
            Edit(
                "dledger.state.timers.table:TimerTable._id_keys",
                "number - first + 1",
                "max(number - first, 1)",
            )
        ],
        [f"{TOGETHER}.test_ids_of_many_buckets_are_found_after_one_command"],
    ),
    Mutant(
        "ids-beside-their-bucket",
        "of timers that fire together all ids go into the bucket of the first",
        [
            Edit(
                "dledger.state.lookup.message_ids:MessageIdIndex.record_many",
                "groupby(rows, _bucket_of)",
                "[(_bucket_of(rows[0]), rows)]",
            )
        ],
        [f"{TOGETHER}.test_ids_of_many_buckets_are_found_after_one_command"],
    ),
    Mutant(
        "equal-times-in-any-order",
        "of timers of one time the newest fires first",
        [
            Edit(
                "dledger.state.queues.references:References.new_pin",
                "self._next_number << FIRST_RECORD_BITS",
                "((1 << 40) - self._next_number) << FIRST_RECORD_BITS",
            )
        ],
        [f"{TIMERS}.test_timers_fire_by_time_and_then_in_the_order_of_the_log"],
    ),
    Mutant(
        "timers-survive-their-topic",
        "the timers of a deleted topic stay, and fire into a topic of the same id",
        [
            Edit(
                "dledger.state.topics.commands:ForgetTopics.apply",
                "or not all(sweep.is_over for sweep in sweeps)",
                "",
            )
        ],
        [f"{TIMERS}.test_timers_of_a_deleted_topic_go_and_never_fire_into_another"],
    ),
    Mutant(
        "new-timer-overlooked",
        "a timer that is due before all others is overlooked after a look (trap 13)",
        [
            Edit(
                "dledger.state.timers.table:TimerTable._put",
                "self._from = min(self._from, key)",
                "pass",
            )
        ],
        [f"{TIMERS}.test_a_timer_that_is_set_later_and_due_earlier_fires_first"],
    ),
    Mutant(
        "readers-not-told-of-timers",
        "who waits at the end of a queue is not told when a timer fires (trap 27)",
        [
            Edit(
                "dledger.state.queues.table:QueueTable.append_references",
                "self._referring[queue.id] = queue",
                "pass",
            )
        ],
        [f"{TIMERS}.test_readers_of_a_queue_are_told_when_a_timer_fires"],
    ),
)
