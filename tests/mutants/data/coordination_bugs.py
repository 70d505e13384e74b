"""Known bugs of consumer groups: as objects, and at their coordinator (D20, I19)."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

GRANTING: Final = "dledger.state.consumers.granting"
MEMBERSHIP: Final = "dledger.state.consumers.membership"
DELIVERY: Final = "dledger_broker.delivery"
SESSIONS: Final = "test_sessions"
LATE: Final = "unit.state.test_late_commands"
OBJECTS: Final = "dledger.state.consumers.groups"
OBJECT_STATE: Final = "unit.state.test_consumer_groups"
WIDENING: Final = "unit.broker.test_widening"
AUTHORITY: Final = "unit.broker.test_consumer_group_authority"

COORDINATION_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "granted-before-it-came-back",
        "a queue is granted to its target while its former holder still works on it (I19)",
        [Edit(f"{GRANTING}:Turn.aim", "NOBODY if known is None else known.holder", "NOBODY")],
        [f"{SESSIONS}.test_a_join_takes_queues_after_they_were_given_back"],
    ),
    Mutant(
        "grant-epoch-given-twice",
        "of two grants of one entry the later one has the epoch of the earlier one (I19)",
        [
            Edit(
                f"{GRANTING}:Turn.__init__",
                "max(entry.ref.index, group.epochs.granted + 1)",
                "entry.ref.index",
            )
        ],
        [f"{LATE}.test_two_grants_of_one_entry_have_two_epochs"],
    ),
    Mutant(
        "late-end-ends-who-came-back",
        "the end of a session that was decided before the consumer came back takes it out (D20)",
        [
            Edit(
                f"{MEMBERSHIP}:EndSessions.apply",
                "if name in group.consumers and group.consumers[name].joined == joined",
                "if name in group.consumers and joined",
            )
        ],
        [f"{LATE}.test_the_end_of_an_old_session_does_not_touch_who_came_back"],
    ),
    Mutant(
        "old-assignment-is-taken",
        "an assignment that was computed for other consumers than there are is stored (D20)",
        [
            Edit(
                f"{GRANTING}:Assign.apply",
                "if group.epochs.group != self.group_epoch:",
                "if group.epochs.group < self.group_epoch:",
            )
        ],
        [f"{LATE}.test_an_assignment_of_an_earlier_group_epoch_is_refused"],
    ),
    Mutant(
        "new-leader-ends-sessions-at-once",
        "a new leader gives consumers no time to come back: all queues move (D20)",
        [
            Edit(
                f"{DELIVERY}.sessions:Sessions.over",
                "_Times(consumer.joined, now, now + seconds, connected=False)",
                "_Times(consumer.joined, now, now, connected=False)",
            )
        ],
        [f"{SESSIONS}.test_a_change_of_the_leader_moves_nothing"],
    ),
    Mutant(
        "static-consumer-is-not-waited-for",
        "a static consumer that restarts has no more time than any other: its queues move (D20)",
        [
            Edit(
                f"{DELIVERY}.led_group:LedGroup.closed",
                "self.session_seconds if is_static else GRACE_SECONDS",
                "GRACE_SECONDS",
            )
        ],
        [f"{SESSIONS}.test_a_static_consumer_may_be_away_for_its_session"],
    ),
    Mutant(
        "static-consumer-keeps-its-epochs",
        "the next life of a static consumer has the epochs of the last one: nothing tells "
        "their commits apart (I19)",
        [
            Edit(
                f"{MEMBERSHIP}:_hand_on",
                "            turn.free(key, target)\n",
                "            turn._place(key, grant, target, new)\n",
            )
        ],
        [f"{LATE}.test_the_next_life_of_a_static_consumer_has_epochs_of_its_own"],
    ),
    Mutant(
        "late-give-back-frees-a-later-grant",
        "a copy of a give-back frees the queue that came again: it has two holders (I19)",
        [
            Edit(
                f"{GRANTING}:GiveBack.apply",
                "(grant.holder, grant.epoch) != (self.consumer, epoch)",
                "grant.holder != self.consumer",
            )
        ],
        [f"{LATE}.test_a_copy_of_a_give_back_does_not_free_a_later_grant"],
    ),
    Mutant(
        "give-back-of-an-earlier-session-counts",
        "a consumer that came back loses a queue of which it was told that it has it (I19)",
        [
            Edit(
                f"{GRANTING}:GiveBack.apply",
                "consumer is None or consumer.joined != self.joined",
                "consumer is None",
            )
        ],
        [f"{LATE}.test_a_give_back_of_an_earlier_session_frees_nothing"],
    ),
    Mutant(
        "what-stays-gets-a-new-epoch",
        "a queue that is aimed back at its holder has a new epoch: its commits are fenced (D20)",
        [
            Edit(
                f"{GRANTING}:Turn._place",
                "after = replace(known, target=target, holder=holder)",
                "after = replace(known, target=target, holder=holder, epoch=self._epoch)",
            )
        ],
        [f"{LATE}.test_a_queue_that_is_aimed_back_before_it_came_stays_with_its_epoch"],
    ),
    Mutant(
        "closed-stream-ends-the-session-at-once",
        "a consumer whose connection breaks for a moment loses its queues (D20)",
        [
            Edit(
                f"{DELIVERY}.sessions:Sessions.closed",
                "False, min(times.until, now + seconds)",
                "False, min(times.until, now)",
            )
        ],
        [f"{SESSIONS}.test_who_comes_back_within_the_grace_keeps_its_queues"],
    ),
    Mutant(
        "own-pause-is-their-silence",
        "a leader that did not run for a while ends the sessions that it did not hear (D20)",
        [
            Edit(
                f"{DELIVERY}.sessions:Sessions.over",
                "if late > LATE_SECONDS:",
                "if late < 0:",
            )
        ],
        [
            "unit.delivery.test_sessions."
            "test_time_in_which_the_process_did_not_run_is_nobodys_silence"
        ],
    ),
)

GROUP_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "late-creation-of-a-group",
        "a late copy of a creation brings a deleted consumer group back",
        [
            Edit(
                f"{OBJECTS}:CreateConsumerGroup.apply",
                "if self.known_index < topics.floor:",
                "if False:",
            )
        ],
        [f"{OBJECT_STATE}.test_a_late_copy_of_a_creation_creates_nothing"],
    ),
    Mutant(
        "deleted-group-keeps-its-dead-letters",
        "the deletion of a consumer group leaves the topic of its dead letters",
        [
            Edit(
                f"{OBJECTS}:DeleteConsumerGroup.apply",
                "for topic in (dead, retry):",
                "for topic in (retry,):",
            )
        ],
        [f"{OBJECT_STATE}.test_deletion_takes_both_topics_and_frees_the_name"],
    ),
    Mutant(
        "update-takes-all-settings",
        "a change of one setting undoes what another caller changed meanwhile",
        [
            Edit(
                f"{OBJECTS}:UpdateConsumerGroup.apply",
                "for field in self.fields",
                "for field in CHANGEABLE",
            )
        ],
        [f"{OBJECT_STATE}.test_an_update_changes_what_it_names"],
    ),
    Mutant(
        "topics-of-groups-are-deleted-alone",
        "DeleteTopic takes the retries of a consumer group away, and its dead letters stay",
        [
            Edit(
                "dledger.state.topics.commands:DeleteTopic.apply",
                "_check_plain(state.topics, known)",
                "pass",
            )
        ],
        [f"{OBJECT_STATE}.test_the_topics_of_a_group_are_not_deleted_alone"],
    ),
    Mutant(
        "patterns-hold-the-loop",
        "a Join whose patterns match slowly stops everything else of its member (D20)",
        [
            Edit(
                f"{DELIVERY}.subscribed:Subscription.give_way",
                "if work - self._work > WORK_AT_ONCE or self._matched > NAMES_AT_ONCE:",
                "if False:",
            )
        ],
        ["unit.delivery.test_joining.test_a_join_that_matches_many_names_lets_others_go_on"],
    ),
    Mutant(
        "widening-stops-at-one-group",
        "one consumer group that is always refused keeps all others from new broker groups (D20)",
        [
            Edit(
                "dledger_broker.group.widening:lacking",
                "if retry.topic_id in resting:",
                "if False:",
            )
        ],
        [f"{WIDENING}.test_a_group_that_is_always_refused_keeps_nobody_back"],
    ),
    Mutant(
        "widening-trusts-the-term-before",
        "a leader takes what it proposed in an earlier term, and what was lost with it, for done",
        [
            Edit(
                "dledger_broker.group.widening:GroupWidening.due",
                "looked_for = look.leads_term, self._broker_groups()",
                "looked_for = 1, self._broker_groups()",
            )
        ],
        [f"{WIDENING}.test_only_a_leader_looks_and_only_in_its_time"],
    ),
    Mutant(
        "second-first-consumer-is-refused",
        "of two first consumers that ask at once the second is told that the group exists",
        [
            Edit(
                "dledger_broker.cluster.consumer_groups:ConsumerGroupAuthority._propose_create",
                "if request.automatic and",
                "if False and",
            )
        ],
        [f"{AUTHORITY}.test_of_two_first_consumers_at_once_the_second_finds_the_group"],
    ),
)
