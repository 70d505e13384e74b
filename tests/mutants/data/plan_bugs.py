"""Known bugs of plans for bulk reads."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

PLAN: Final = "dledger_client.reading.plan"
HOLDS: Final = "dledger_client.reading.holds"
BATCH: Final = "dledger_client.spark.batch"
STREAM: Final = "dledger_client.spark.stream"
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
    Mutant(
        "plan-moves-a-shared-hold",
        "who reads from later on takes the hold of who reads from before with him",
        [
            Edit(
                f"{HOLDS}:HoldRequest.on",
                'f"shared-{self.ttl_ms}-{offset}"',
                'f"shared-{self.ttl_ms}"',
            )
        ],
        [f"{SCRIPTS}.test_a_shared_hold_keeps_what_each_of_its_readers_reads"],
    ),
    Mutant(
        "stream-holds-anew-with-each-batch",
        "a stream of several batches a second uses up the holds of a young queue",
        [Edit(f"{HOLDS}:KeptHolds.at", "if now - at < self._seconds", "if now - at < 0")],
        [f"{SCRIPTS}.test_a_stream_has_few_holds_whatever_its_rate"],
    ),
    Mutant(
        "plan-goes-on-with-a-hold-of-what-is-gone",
        "a stream that paused renews a hold behind which the queue was trimmed, and is refused",
        [
            Edit(
                f"{HOLDS}:HoldRequest.on",
                "state.minimum <= kept.offset <= start",
                "kept.offset <= start",
            )
        ],
        [f"{SCRIPTS}.test_a_hold_that_is_gone_on_with_keeps_what_is_read"],
    ),
    Mutant(
        "plan-goes-on-with-a-hold-that-is-too-late",
        "what lies between a plan's start and a hold that was taken before is not held",
        [
            Edit(
                f"{HOLDS}:HoldRequest.on",
                "state.minimum <= kept.offset <= start",
                "state.minimum <= kept.offset",
            )
        ],
        [f"{SCRIPTS}.test_a_hold_that_is_gone_on_with_keeps_what_is_read"],
    ),
    Mutant(
        "plan-has-many-places",
        "jobs that come again and again use up the holds of a young queue",
        [Edit(f"{HOLDS}:_step", "// PLACES", "// 16")],
        [f"{SCRIPTS}.test_jobs_share_few_holds_wherever_they_begin"],
    ),
    Mutant(
        "plan-narrows-by-what-is-left",
        "what was trimmed before a filter was looked up is left out of the read, and of the log",
        [
            Edit(
                f"{BATCH}:PushingReader._check_trimmed",
                "gap.end <= gap.start",
                "gap.end >= gap.start",
            )
        ],
        [f"{SCRIPTS}.test_what_is_trimmed_while_a_filter_is_looked_up_is_told"],
    ),
    Mutant(
        "stream-lets-go-while-it-waits",
        "a batch that waits for more is trimmed under its hold, which ends before it",
        [
            Edit(
                f"{STREAM}:LogStreamReader._hold_on", "self._between(planner, start, start)", "pass"
            )
        ],
        [f"{SCRIPTS}.test_what_waits_for_more_is_held"],
    ),
    Mutant(
        "stream-takes-a-new-queue-from-what-is-left",
        "a stream does not say that records of a queue that came later are gone",
        [
            Edit(
                f"{STREAM}:LogStreamReader._between",
                "by_topic(start), missing=0",
                "by_topic(start), missing=-2",
            )
        ],
        [f"{SCRIPTS}.test_a_stream_tells_what_was_trimmed_of_a_queue_that_came_later"],
    ),
    Mutant(
        "stream-stands-still-behind-the-end",
        "a checkpoint of another log waits for offsets that never come",
        [Edit(f"{STREAM}:check_held", "if offset > state.maximum:", "if False:")],
        [f"{SCRIPTS}.test_a_stream_behind_the_end_of_the_log_is_refused"],
    ),
)
