"""Known bugs of consumers in groups: commits, leases, the order of listeners."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

GROUP: Final = "dledger_client._core.group"
CORE: Final = f"{GROUP}.core:GroupCore"
DISPATCHER: Final = f"{GROUP}.dispatch:Dispatcher"
CLAIMS: Final = f"{GROUP}.claims:Claims"
CONSUMER: Final = "test_group_consumer"
DISPATCH: Final = "test_dispatch"
COMPACTED: Final = "test_compacted"
FETCHING: Final = "dledger_client._core.consumer.core:ConsumerCore"

PORTIONS: Final = "unit.broker.test_portions"

CONSUMER_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "consumer-late-callback-advances-the-floor",
        "a listener that ends after its queue was lost still counts for the queue",
        [Edit(f"{DISPATCHER}.ended", "if not job.is_over:", "if True:")],
        [f"{DISPATCH}.test_a_newer_claim_waits_for_the_job_of_the_older_one"],
    ),
    Mutant(
        "consumer-failure-of-a-lost-queue-is-told",
        "a failure of an older claim is told under the newer one",
        [
            Edit(f"{CORE}.fail", "if failure.held.is_held:", "if True:"),
            Edit(f"{GROUP}.failures:Failures.pump", "if failure.held.is_held]", "if True]"),
        ],
        [f"{CONSUMER}.test_a_late_callback_of_a_lost_queue_changes_nothing"],
    ),
    Mutant(
        "consumer-commit-skips-an-unfinished-record",
        "the floor goes up to what is done last, over records that a listener still has",
        [
            Edit(
                f"{GROUP}.progress:Progress.done",
                "if first <= self.floor:",
                "if first <= self.floor + 1:",
            )
        ],
        [f"{DISPATCH}.test_concurrent_jobs_of_a_queue_run_side_by_side_and_the_floor_waits"],
    ),
    Mutant(
        "consumer-takes-a-gap-for-done",
        "what a fetch leaves out between two runs counts as consumed",
        [
            Edit(
                f"{GROUP}.progress:Progress.take",
                "self.taken = max(self.taken, end)",
                "self.done(min(self.taken, first), first) if first > self.taken else None\n"
                "        self.taken = max(self.taken, end)",
            )
        ],
        [f"{DISPATCH}.test_a_record_that_a_fetch_left_out_is_not_done"],
    ),
    Mutant(
        "consumer-keeps-its-floor-before-what-is-gone",
        "offsets whose records are compacted are never done: the floor of the group stays there",
        [Edit(f"{DISPATCHER}.add", "if run.gone_before:", "if False:")],
        [f"{COMPACTED}.test_the_floor_of_a_group_moves_over_what_is_gone"],
    ),
    Mutant(
        "consumer-takes-a-loss-for-compaction",
        "a record that a member left out without a word is passed over as if it were compacted",
        [
            Edit(
                f"{FETCHING}._take_row",
                "if row.base_offset > read.fetch_at:",
                "if row.base_offset > read.fetch_at and not row.is_gone:",
            )
        ],
        [f"{COMPACTED}.test_a_record_that_is_left_out_is_no_compaction"],
    ),
    Mutant(
        "consumer-restarts-a-queue-for-one-refusal",
        "a failure that the home group refuses makes the consumer drop all it has of the queue",
        [
            Edit(
                f"{GROUP}.failures:Failures._ends_the_claim",
                "return code in (Code.FENCED, Code.OFFSET_RESET)",
                "return True",
            )
        ],
        [f"{CONSUMER}.test_one_failure_that_is_refused_rests_and_everything_else_goes_on:340"],
    ),
    Mutant(
        "consumer-counts-failures-of-another-group",
        "a record that another group failed to handle comes with those attempts",
        [
            Edit(
                f"{GROUP}.dispatch:known_attempts",
                "record.attempts if lane.is_retries else 0",
                "record.attempts",
            )
        ],
        [f"{DISPATCH}.test_failures_in_another_group_are_no_attempts_in_this_one"],
    ),
    Mutant(
        "consumer-hands-out-after-its-lease",
        "an ordered consumer hands out records although its lease is over",
        [
            Edit(
                f"{GROUP}.queues:HeldQueue.may_hand_out",
                "and self.rest_until <= now < self.lease_end",
                "and self.rest_until <= now",
            )
        ],
        [f"{DISPATCH}.test_nothing_is_handed_out_after_the_lease"],
    ),
    Mutant(
        "consumer-counts-its-lease-from-the-answer",
        "a lease is thought to last longer than the home group thinks",
        [
            Edit(
                f"{CLAIMS}.answered",
                "asked.sent_at, reply.now_ms, now)",
                "now, reply.now_ms, now)",
            )
        ],
        [f"{CONSUMER}.test_a_lease_is_renewed_at_a_third_and_counts_from_when_it_was_asked_for"],
    ),
    Mutant(
        "consumer-calls-back-twice-at-once",
        "an ordered queue gives its next record while the listener has one of it",
        [
            Edit(
                f"{DISPATCHER}._offer",
                "if (lane.held.place, chain.key) in self._running:",
                "if False:",
            )
        ],
        [f"{DISPATCH}.test_a_newer_claim_waits_for_the_job_of_the_older_one"],
    ),
    Mutant(
        "consumer-goes-on-after-a-failure",
        "an ordered queue goes on with the next record before the one that failed comes again",
        [
            Edit(
                f"{DISPATCHER}.settle",
                "chain.failing += len(failed)",
                "chain.failing += 0",
            )
        ],
        [f"{DISPATCH}.test_an_ordered_chain_waits_for_its_record_that_failed"],
    ),
    Mutant(
        "consumer-does-not-know-the-ordering-key",
        "the ordering key of a record is not stored: two records of one key go side by side",
        [
            Edit(
                "dledger_client._core.message_checks:make_record",
                "if ordering_key is not None:",
                "if False:",
            )
        ],
        [
            f"{DISPATCH}"
            ".test_records_of_one_ordering_key_go_one_after_another_whatever_their_keys_are"
        ],
    ),
    Mutant(
        "consumer-takes-results-behind-a-failure",
        "in an ordered batch the records behind one that failed are done before it",
        [
            Edit(
                f"{DISPATCHER}.settle",
                "back = job.records[at:]",
                "held.progress.done(offset + 1, job.records[-1].offset + 1)\n"
                "                back = job.records[at : at + 1]",
            )
        ],
        [
            f"{DISPATCH}"
            ".test_what_comes_behind_a_failure_in_an_ordered_batch_comes_again_behind_it:true"
        ],
    ),
    Mutant(
        "consumer-gives-back-before-its-commit",
        "a revoked queue is given back while its last commit is under way",
        [Edit(f"{CORE}.pump", "and not held.is_dirty ", "")],
        [f"{CONSUMER}.test_a_revoked_queue_is_let_go_committed_released_and_only_then_given_back"],
    ),
    Mutant(
        "consumer-gives-back-what-the-listener-has",
        "a revoked queue is given back as soon as it is asked back",
        [
            Edit(
                f"{CORE}.pump",
                "elif held in self._let_go and",
                'elif held.state.value == "leaving" and',
            )
        ],
        [f"{CONSUMER}.test_a_revoked_queue_is_let_go_committed_released_and_only_then_given_back"],
    ),
    Mutant(
        "consumer-commits-over-a-reset",
        "a reset changes nothing for a consumer that has the queue",
        [Edit(f"{CORE}._claimed", "elif outcome.was_reset:", "elif False:")],
        [f"{CONSUMER}.test_a_reset_drops_what_is_in_hand_and_claims_again"],
    ),
    Mutant(
        "consumer-poison-burns-its-neighbours",
        "of a batch that fails all records are delivered together again",
        [Edit(f"{DISPATCHER}.again", "chain.alone += count", "chain.alone += 0")],
        [f"{DISPATCH}.test_a_batch_that_fails_comes_again_record_by_record"],
    ),
    Mutant(
        "push-fetches-over-and-over",
        "a push consumer fetches until its buffer is full, drops it, and fetches it again",
        [
            Edit(
                "dledger_client._core.consumer.buffer:FetchBuffer.has_enough",
                "2 * buffered >= self._bytes_max",
                "buffered > self._bytes_max",
            )
        ],
        [
            "unit.client.test_push_promises."
            "test_a_slow_listener_does_not_have_its_backlog_fetched_over_and_over"
        ],
    ),
    Mutant(
        "frames-of-a-reader-that-left-stay-counted",
        "readers that come and go fill the bound for frames, and shrink those of all others",
        [
            Edit(
                "dledger_broker.read.portions:Portions.close",
                "ahead.result().give_up()",
                "pass",
            )
        ],
        [f"{PORTIONS}.test_what_was_read_ahead_is_given_up_with_its_reader"],
    ),
    Mutant(
        "damage-is-everybodys",
        "what cannot be read in one queue ends the frames of all that are read with it",
        [
            Edit(
                "dledger_broker.read.frames:Unread.read",
                "except FAILURES as error:",
                "except ZeroDivisionError as error:",
            )
        ],
        [f"{PORTIONS}.test_what_cannot_be_read_is_told_of_its_own_queue_alone"],
    ),
)
