"""Known bugs of schedules (D23)."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

STATE: Final = "unit.state.test_schedules"
SENDING: Final = "unit.broker.test_schedule_sending"

SCHEDULE_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "schedule-sends-twice",
        "an occurrence that two leaders propose is stored twice",
        [
            Edit(
                "dledger.state.timers.schedule_table:ScheduleTable.take",
                "due_ms <= last_due_ms",
                "due_ms < last_due_ms",
            )
        ],
        [f"{STATE}.test_an_occurrence_is_stored_once_however_often_it_is_proposed"],
    ),
    Mutant(
        "schedule-sends-early",
        "an occurrence is stored when a leader proposes it, although its time has not come",
        [
            Edit(
                "dledger.state.timers.schedule_table:ScheduleTable.take",
                "due_ms > time_ms",
                "False",
            )
        ],
        [f"{STATE}.test_an_occurrence_is_not_stored_before_its_time"],
    ),
    Mutant(
        "schedule-replaced-begins-anew",
        "a schedule that is replaced forgets what it sent, and sends it again",
        [
            Edit(
                "dledger.state.timers.schedules:SetSchedule.apply",
                "max(entry.time_ms, known.last_due_ms if known is not None else 0)",
                "0",
            )
        ],
        [f"{STATE}.test_a_schedule_that_is_replaced_sends_nothing_a_second_time"],
    ),
    Mutant(
        "schedule-outlives-its-deletion",
        "a deleted schedule leaves its row, and what the old leader proposed is stored",
        [
            Edit(
                "dledger.state.timers.schedule_table:ScheduleTable.delete",
                "self._writer.delete(PREFIX[Table.SCHEDULE_DUE] + at)",
                "pass",
            )
        ],
        [f"{STATE}.test_a_deleted_schedule_sends_no_more"],
    ),
    Mutant(
        "schedule-forgets-at-failover",
        "a new leader begins with the time after its own start: what was due before is lost",
        [
            Edit(
                "dledger_broker.timers.sending:ScheduleSending._note",
                "schedule.last_due_ms, now_ms",
                "now_ms, now_ms",
            )
        ],
        [f"{SENDING}.test_times_that_nobody_led_give_one_message"],
    ),
    Mutant(
        "schedule-refused-is-lost",
        "an occurrence that could not be proposed is not tried again",
        [
            Edit(
                "dledger_broker.timers.sending:ScheduleSending._again",
                "heappush(self._looks, (look_ms, schedule.topic_id, schedule.name))",
                "pass",
            )
        ],
        [f"{SENDING}.test_a_refused_proposal_is_tried_again_and_stored_once"],
    ),
    Mutant(
        "schedule-by-wall-time",
        "in an hour that a zone has twice, the next time is one that is over, proposed without end",
        [
            Edit(
                "dledger_broker.timers.cron:_first_after",
                "if due_ms > last_ms:",
                "if due_ms:",
            )
        ],
        ["unit.broker.test_cron.test_a_time_of_day_that_is_over_is_not_next"],
    ),
    Mutant(
        "schedule-proposed-in-vain",
        "what a queue does not take is proposed each second, and fills the log",
        [
            Edit(
                "dledger_broker.timers.sending:ScheduleSending._note",
                "if refusal is None:",
                "if True:",
            )
        ],
        [f"{SENDING}.test_what_a_queue_does_not_take_is_not_proposed_and_sent_once_it_takes_it"],
    ),
    Mutant(
        "schedule-sent-by-anybody",
        "a client may send the message of a schedule, and the schedule does not",
        [
            Edit(
                "dledger_broker.append.write_rule:WriteRule.refusal",
                "header.producer_epoch == EPOCH_OF_SCHEDULES",
                "False",
            )
        ],
        [f"{SENDING}.test_a_client_cannot_send_in_the_name_of_a_schedule"],
    ),
)
