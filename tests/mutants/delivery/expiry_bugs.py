"""Known bugs of the expiry of consumer groups: one is deleted that somebody uses (D20)."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

USAGE: Final = "dledger.state.consumers.usage:UsageTable"
UNUSED: Final = "dledger.state.consumers.unused"
EXPIRY: Final = "dledger_broker.cluster.group_expiry"
STATE: Final = "unit.state.test_group_use"
LEADER: Final = "unit.broker.test_group_expiry"

EXPIRY_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "one-broker-group-is-enough",
        "a consumer group is deleted although another broker group said that it is used",
        [Edit(f"{EXPIRY}:all_agree", "return all(", "return any(")],
        [f"{LEADER}.test_one_broker_group_that_has_a_use_is_enough_to_keep_it"],
    ),
    Mutant(
        "silence-is-consent",
        "a consumer group is deleted although a broker group did not answer",
        [
            Edit(
                f"{EXPIRY}:all_agree",
                "group_id in (answers.get(name) or ())",
                "(answers.get(name) is None or group_id in answers[name])",
            )
        ],
        [f"{LEADER}.test_a_broker_group_that_does_not_answer_keeps_all"],
    ),
    Mutant(
        "answers-last-for-ever",
        "a leader that stood still deletes by answers of before",
        [
            Edit(
                f"{EXPIRY}:GroupExpiry.look",
                "view.clock.monotonic() - began > ANSWERS_LAST_SECONDS",
                "False",
            )
        ],
        [f"{LEADER}.test_old_answers_delete_nothing"],
    ),
    Mutant(
        "own-uses-are-looked-at-first",
        "a use in the control group itself, while the others answer, is overlooked",
        [
            Edit(
                f"{EXPIRY}:GroupExpiry.look",
                "and state.is_unused(retry.topic_id, self._expiry_ms, view.now_ms)",
                "",
            )
        ],
        [f"{LEADER}.test_a_use_here_while_the_others_answer_keeps_it"],
    ),
    Mutant(
        "commits-are-no-use",
        "a consumer group that only commits is called unused: no row is written",
        [
            Edit(
                "dledger.state.progress.table:ProgressTable.write",
                "self._usage.touch(group_id)",
                "pass",
            )
        ],
        [f"{STATE}.test_a_consumer_without_a_session_uses_the_group_by_its_commits"],
    ),
    Mutant(
        "joins-are-no-use",
        "a consumer group is deleted soon after its last consumer left it, however long it was in",
        [
            Edit(
                "dledger.state.consumers.membership:EndSessions.apply",
                "state.usage.touch(self.group_id)",
                "pass",
            )
        ],
        [f"{STATE}.test_joined_consumers_use_the_group_at_its_coordinator"],
    ),
    Mutant(
        "joined-consumers-are-ignored",
        "a consumer group is deleted under consumers that get no messages for long",
        [
            Edit(
                f"{UNUSED}:is_unused",
                "coordinator == state.group and state.consumers.group(group_id).consumers",
                "False",
            )
        ],
        [f"{STATE}.test_joined_consumers_use_the_group_at_its_coordinator"],
    ),
    Mutant(
        "use-is-counted-early",
        "the time of a step, and that of a count, are not added: a group goes before its time",
        [
            Edit(
                f"{USAGE}._stop_step",
                "self._time.certainly_before(unused_ms) // USE_STEP_MS",
                "max(self._time.ms - unused_ms, 0) // USE_STEP_MS + 1",
            )
        ],
        [f"{STATE}.test_no_group_is_called_unused_early"],
    ),
    Mutant(
        "no-row-is-old",
        "a consumer group of an older dledger, of which no use was noted, is deleted",
        [Edit(f"{USAGE}.is_silent", "known is not None and", "known is None or")],
        [f"{STATE}.test_a_group_without_a_row_counts_as_used"],
    ),
    Mutant(
        "retries-to-come-are-ignored",
        "a consumer group is deleted while a failure of it waits for its next try",
        [Edit(f"{UNUSED}:is_unused", "or _awaits_retry(state, group_id, now_ms)", "")],
        [f"{STATE}.test_a_retry_that_is_to_come_keeps_the_group"],
    ),
    Mutant(
        "dead-letters-are-ignored",
        "a consumer group is deleted with dead letters that nobody settled",
        [
            Edit(
                f"{UNUSED}:_has_records",
                "return row.waiting(queue.minimum, queue.maximum) > 0",
                "return False",
            ),
            Edit(
                f"{UNUSED}:_has_records",
                "return queue.minimum < queue.maximum",
                "return False",
            ),
        ],
        [f"{STATE}.test_settling_a_dead_letter_is_a_use"],
    ),
)
