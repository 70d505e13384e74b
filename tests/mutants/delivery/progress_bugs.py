"""Known bugs of progress in queues: fences, leases, floors, resets, failures, dead letters."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

PROGRESS: Final = "dledger.state.progress"
CLAIMS: Final = "unit.state.test_progress"
FAILURES: Final = "unit.state.test_failures"
GRANTS: Final = "unit.delivery.test_grants"
LEASES: Final = "unit.broker.test_leases"

PROGRESS_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "old-owner-commits",
        "a consumer commits in a queue that another one has claimed since (D21, trap 5)",
        [
            Edit(
                f"{PROGRESS}.fence:refusal_of_sender",
                "if row is None or (epoch, consumer) != (row.epoch, row.consumer):",
                "if row is None:",
            )
        ],
        [f"{CLAIMS}.test_a_newer_claim_fences_whoever_had_the_queue"],
    ),
    Mutant(
        "lease-of-one-is-taken",
        "a consumer claims an ordered queue while the lease of another one lasts (D21)",
        [
            Edit(
                f"{PROGRESS}.fence:refusal_to_claim",
                "elif consumer != row.consumer and lease_lasts("
                "row.lease_until_ms, row.leased_at, over, time_ms):",
                "elif False:",
            )
        ],
        [f"{CLAIMS}.test_an_ordered_claim_is_a_lease_until_a_leader_says_that_it_is_over"],
    ),
    Mutant(
        "stamps-end-leases",
        "a leader whose clock is ahead lets a consumer in while the former one has its lease (D8)",
        [
            Edit(
                f"{PROGRESS}.fence:lease_lasts",
                "return over != leased_at",
                "return time_ms < until_ms",
            )
        ],
        [f"{LEASES}.test_a_leader_whose_stamps_are_ahead_lets_nobody_in_early"],
    ),
    Mutant(
        "renewal-names-no-lease",
        "a lease that was renewed while its end was proposed is taken from its holder (D22)",
        [Edit(f"{PROGRESS}.fence:lease_lasts", "return over != leased_at", "return not over")],
        [f"{CLAIMS}.test_an_ordered_claim_is_a_lease_until_a_leader_says_that_it_is_over"],
    ),
    Mutant(
        "new-process-forgets-leases",
        "a member that begins calls every lease over that it has not seen itself (D22)",
        [
            Edit(
                "dledger_broker.group.leases:Leases.__init__",
                "(machine.applied_index, self._began)",
                "(machine.applied_index, self._began - 1e6)",
            )
        ],
        [f"{LEASES}.test_a_member_that_begins_counts_from_its_beginning"],
    ),
    Mutant(
        "fence-raised-by-anybody",
        "a claim by a number that somebody made up closes a queue for ever (D21)",
        [
            Edit(
                "dledger_broker.delivery.grants:_is_granted",
                "(grant.holder, grant.epoch) == (consumer, asked.epoch)",
                "asked.epoch > 0",
            )
        ],
        [f"{GRANTS}.test_no_number_that_somebody_made_up_closes_a_queue"],
    ),
    Mutant(
        "fence-raised-unasked",
        "a claim above the fence is taken without the coordinator's word (D21)",
        [
            Edit(
                "dledger_broker.delivery.grants:Grants.checked",
                "if epoch > (fence or 0):",
                "if False:",
            )
        ],
        [f"{GRANTS}.test_another_broker_group_is_asked_for_what_it_granted"],
    ),
    Mutant(
        "producers-fill-all-timers",
        "delayed messages take every timer, and no record that failed can be tried again (S107)",
        [
            Edit(
                "dledger.state.timers.table:TimerTable.check_room",
                "TIMERS_MAX if for_retry else TIMERS_MAX - TIMERS_FOR_RETRIES",
                "TIMERS_MAX",
            )
        ],
        [f"{FAILURES}.test_producers_leave_timers_for_failures"],
    ),
    Mutant(
        "queue-named-twice",
        "a call that names a queue twice is taken: a reset counts twice (S113)",
        [
            Edit(
                "dledger_broker.usecases.queues:check_each_once",
                "first.setdefault(each, at) != at",
                "False",
            )
        ],
        ["unit.broker.test_commits.test_a_call_that_names_a_queue_twice_is_refused"],
    ),
    Mutant(
        "an-idle-consumer-hears-of-no-reset",
        "an offset is reset while the coordinator is out of reach, and nothing is read again",
        [
            Edit(
                "dledger_client._core.group.claims:Claims._outcome",
                "LOOK_AGAIN_SECONDS",
                "math.inf",
            )
        ],
        ["test_group_consumer.test_an_idle_consumer_finds_a_reset_that_nobody_told_it_of"],
    ),
    Mutant(
        "reset-ends-the-lease",
        "a reset lets the next consumer in while the first one has a record in hand (trap 16)",
        [
            Edit(
                f"{PROGRESS}.row:Progress.reset",
                "self.resets = (self.resets + 1) & _RESETS_MASK",
                "self.resets = (self.resets + 1) & _RESETS_MASK; self.end_lease()",
            )
        ],
        [f"{CLAIMS}.test_a_reset_lets_nobody_else_in_before_the_lease_ends"],
    ),
    Mutant(
        "commit-over-a-reset",
        "a consumer that did not hear of a reset commits over it (S113)",
        [
            Edit(
                f"{PROGRESS}.fence:refusal_of_sender",
                "if resets != row.resets:",
                "if False:",
            )
        ],
        [f"{CLAIMS}.test_no_consumer_commits_over_a_reset"],
    ),
    Mutant(
        "late-claim-comes-back",
        "a claim that was given back is taken again when a copy of it comes late (D21)",
        [
            Edit(
                f"{PROGRESS}.fence:refusal_to_claim",
                "if row.holding is Holding.RELEASED:",
                "if False:",
            )
        ],
        [f"{CLAIMS}.test_nothing_of_a_claim_that_was_given_back_is_taken"],
    ),
    Mutant(
        "late-commit-undoes",
        "a commit that comes late moves the floor back (I14)",
        [
            Edit(
                f"{PROGRESS}.commits:CommitOffsets._commit",
                "settled(max(row.floor, item.offset), row.done, item.done)",
                "settled(item.offset, row.done, item.done)",
            )
        ],
        [f"{CLAIMS}.test_done_ranges_merge_into_the_floor_in_any_order"],
    ),
    Mutant(
        "ranges-dropped-in-silence",
        "done ranges beyond the limit are dropped, and their records delivered again (D22)",
        [
            Edit(
                f"{PROGRESS}.commits:CommitOffsets._commit",
                "return Code.TOO_MANY_RANGES, row.floor, 0",
                "done = done[:RANGES_MAX]",
            )
        ],
        [f"{CLAIMS}.test_a_queue_has_at_most_so_many_done_ranges"],
    ),
    Mutant(
        "ordered-ignores-a-reset",
        "a record stays suspended over a reset (trap 12)",
        [Edit(f"{PROGRESS}.row:Progress.reset", "self.suspended = {}", "pass")],
        [f"{FAILURES}.test_a_commit_and_a_reset_end_a_suspension"],
    ),
    Mutant(
        "last-skips-a-young-queue",
        "a group that begins last misses what came before its first claim of a new queue (S103)",
        [
            Edit(
                f"{PROGRESS}.start:start_offset",
                "if _is_younger(queues, queue, settings.start_time_ms):",
                "if False:",
            )
        ],
        [f"{CLAIMS}.test_last_misses_nothing_of_a_queue_that_is_younger_than_the_group"],
    ),
    Mutant(
        "last-skips-what-came-before-the-claim",
        "a group that begins last misses what came between its join and its first claim (S103)",
        [
            Edit(
                f"{PROGRESS}.start:start_offset",
                "queues.offset_by_time(queue, since_ms) if since_ms else queue.maximum",
                "queue.maximum",
            )
        ],
        [f"{CLAIMS}.test_last_begins_where_the_group_began_to_want_the_queue"],
    ),
    Mutant(
        "last-by-the-clock-of-another",
        "a group that begins last misses records when two leaders' clocks differ (S103)",
        [
            Edit(
                "dledger_broker.delivery.grants:Grants.checked",
                "since_ms = max(1, asked_ms - ms)",
                "since_ms = max(1, self._view.clock.wall_ms() - ms)",
            )
        ],
        [f"{GRANTS}.test_two_clocks_that_differ_hide_no_record"],
    ),
    Mutant(
        "failure-counts-twice",
        "a failure that is told twice makes two retries of one record (S107)",
        [
            Edit(
                f"{PROGRESS}.failures:FailRecords._fail",
                "if row.is_done(failed.offset):",
                "if False:",
            )
        ],
        [f"{FAILURES}.test_a_failure_that_is_told_twice_counts_once"],
    ),
    Mutant(
        "dead-record-comes-back",
        "who tells the last failure of an ordered group twice is told to try the record again",
        [
            Edit(
                f"{PROGRESS}.failures:FailRecords._fail",
                "is_dead=group.is_ordered",
                "is_dead=False",
            )
        ],
        [f"{FAILURES}.test_an_ordered_record_stays_suspended_until_it_is_dead"],
    ),
    Mutant(
        "retry-and-not-done",
        "a record that failed is tried again, and stays in its queue, too (D25)",
        [Edit(f"{PROGRESS}.failures:_move", "row.finish(floor, done)", "pass")],
        [f"{FAILURES}.test_a_failure_is_tried_again_after_the_delays_of_its_group"],
    ),
    Mutant(
        "lost-at-the-last-try",
        "a record that failed for the last time is done, and in no dead letters (trap 18)",
        [
            Edit(
                f"{PROGRESS}.failures:_move",
                "elif group.settings.dead_letters:",
                "elif False:",
            )
        ],
        [f"{FAILURES}.test_a_record_can_be_dead_at_once_or_wait_its_own_time"],
    ),
    Mutant(
        "attempts-begin-anew",
        "the attempts of a record do not travel with its reference (trap 1)",
        [
            Edit(
                f"{PROGRESS}.failures:FailRecords._of_waiting",
                "attempts = known + 1",
                "attempts = 1",
            )
        ],
        [f"{FAILURES}.test_the_default_delays_are_those_of_rocketmq"],
    ),
    Mutant(
        "wave-empties-the-topic",
        "a wave of failures goes on into the dead letters although the group is paused",
        [
            Edit(
                f"{PROGRESS}.failures:FailRecords._of_waiting",
                "if pause is not None:",
                "if False:",
            )
        ],
        [f"{FAILURES}.test_a_wave_of_failures_pauses_the_group"],
    ),
    Mutant(
        "dead-letter-sent-twice",
        "a dead letter is sent again with each repeat of the command (D25)",
        [
            Edit(
                f"{PROGRESS}.dead_letters:SettleDeadLetters._settle",
                "if row.is_done(offset) or 0 <= offset < queue.minimum:",
                "if 0 <= offset < queue.minimum:",
            )
        ],
        [f"{FAILURES}.test_dead_letters_can_be_dropped_here_and_there"],
    ),
    Mutant(
        "dead-letters-go-round",
        "a record that always dies is sent again for ever (trap 20)",
        [
            Edit(
                f"{PROGRESS}.dead_letters:SettleDeadLetters._settle",
                "if self.resent_max and origin.resent >= self.resent_max:",
                "if False:",
            )
        ],
        [f"{FAILURES}.test_the_guard_ends_loops"],
    ),
    Mutant(
        "deleted-group-comes-back",
        "the progress of a deleted consumer group stays for ever",
        [
            Edit(
                "dledger.state.topics.sweep:TopicSweep.step",
                "self._delete_row(key, value)",
                "pass",
            )
        ],
        [f'{CLAIMS}.test_deletion_frees_the_rows:"group"'],
    ),
)
