"""Known bugs of calls whose outcome is unknown: what is repeated, and what is told (D11)."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

CLUSTER: Final = "dledger_client._shell.cluster:Cluster"
SCRIPTS: Final = "test_unknown_calls"
PAGES: Final = "unit.broker.test_topic_pages"

CALL_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "unknown-try-forgotten",
        "a call is told as its last try ended, whatever an earlier one may have done",
        [
            Edit(
                f"{CLUSTER}.tried",
                "                    unknown = error\n",
                "                    pass\n",
            )
        ],
        [f"{SCRIPTS}.test_a_refusal_after_an_unknown_try_is_unknown"],
    ),
    Mutant(
        "undoing-is-repeated",
        "a reset, or a change of a topic, is repeated after an unknown try",
        [
            Edit(
                "dledger_client._shell.wire:Channels.call",
                "broken.repeatable = method.is_repeatable",
                "broken.repeatable = True",
            )
        ],
        [f'{SCRIPTS}.test_what_undoes_others_is_not_repeated:"CommitOffsets"'],
    ),
    Mutant(
        "release-is-repeated",
        "a release of a hold is repeated after an unknown try, and ends one taken since",
        [
            Edit(
                "dledger_client.admin_async:AsyncAdmin.hold",
                "calls.HOLD if ttl_ms else calls.RELEASE_HOLD",
                "calls.HOLD",
            )
        ],
        [f'{SCRIPTS}.test_what_undoes_others_is_not_repeated:"Hold"'],
    ),
    Mutant(
        "behind-after-unknown-is-definite",
        "an offset that is behind after an unknown try is told as refused",
        [
            Edit(
                "dledger_client._shell.queries:Queries.commit",
                "raise error if unknown is None else still_unknown(unknown, error)",
                "raise error",
            )
        ],
        [f"{SCRIPTS}.test_an_offset_that_is_behind_after_an_unknown_try_is_unknown"],
    ),
    Mutant(
        "closed-write-is-definite",
        "a write that was on its way when its client closed is told as not done",
        [
            Edit(
                "dledger_client._shell.sharing.own_calls:_ended",
                "Code.UNKNOWN_OUTCOME if write else Code.CLOSED",
                "Code.CLOSED",
            )
        ],
        [f"{SCRIPTS}.test_a_write_that_its_closed_client_had_on_its_way_is_unknown"],
    ),
    Mutant(
        "refusal-hides-unknown",
        "of a call to several groups the first error is told, unknown or not",
        [Edit("dledger_client._shell.queries:_all", "(*unknown, *errors)", "errors")],
        [f"{SCRIPTS}.test_an_unknown_of_one_group_comes_before_the_refusal_of_another"],
    ),
    Mutant(
        "late-creation-makes-anew",
        "a copy of a creation makes the topic again after it was deleted",
        [
            Edit(
                "dledger.state.topics.commands:CreateTopic.apply",
                "topics.by_name(topic.name) or topics.find(topic.topic_id)",
                "topics.by_name(topic.name)",
            )
        ],
        [f"{SCRIPTS}.test_a_creation_that_comes_after_the_deletion_makes_nothing"],
    ),
    Mutant(
        "member-draws-topic-ids",
        "the id that the caller of a creation drew is not used, so its copies are other topics",
        [
            Edit(
                "dledger_broker.cluster.topic_authority:TopicAuthority._propose_create",
                "request.topic_id or self._random.randbytes(ID_SIZE)",
                "self._random.randbytes(ID_SIZE)",
            )
        ],
        ["unit.broker.test_topic_authority.test_a_topic_has_the_id_that_its_caller_drew"],
    ),
    Mutant(
        "holds-in-part-are-refused",
        "of many holds, some of them stored, a refusal of the member is told as nothing done",
        [
            Edit(
                "dledger_broker.usecases.holds:hold_all",
                "if len(errors) == len(results) and all(each.definite for each in errors):",
                "if True:",
            )
        ],
        ["unit.broker.test_holds.test_holds_of_which_some_are_stored_are_not_told_as_refused:7"],
    ),
    Mutant(
        "refusals-come-too-late",
        "a member waits for confirmed state longer than its caller, to whom that is unknown",
        [
            Edit(
                "dledger_broker.group.group_view:GroupView.confirm",
                "min(self.clock.monotonic() + timeout, ANSWER_BY.get())",
                "self.clock.monotonic() + timeout",
            )
        ],
        [
            "unit.broker.test_calls."
            "test_confirmed_state_is_waited_for_no_longer_than_the_caller_waits"
        ],
    ),
    Mutant(
        "holds-by-the-own-clock",
        "a hold counts from a clock that may be behind the stamps by which it ends",
        [
            Edit(
                "dledger_broker.usecases.holds:_command",
                "messaging.view.host.time_ms",
                "messaging.view.clock.wall_ms()",
            )
        ],
        ["unit.broker.test_holds.test_a_hold_counts_from_the_time_by_which_it_ends"],
    ),
    Mutant(
        "damage-in-headers-is-survived",
        "an entry that cannot be read is told to who asked, and the member goes on (I15, I16)",
        [
            Edit(
                "dledger_broker.read.log_entries:log_entries",
                "        view.host.failed(error)\n",
                "",
            )
        ],
        ["unit.broker.test_log_entries.test_damage_ends_the_member_and_not_the_call_alone:null"],
    ),
    Mutant(
        "decision-above-confirmed-taken",
        "a group takes over a decision with an index that the control group has not reached",
        [
            Edit(
                "dledger_broker.cluster.topic_pages:check_page",
                "topic.control_index > reply.confirmed_index",
                "topic.control_index < 0",
            )
        ],
        [f"{PAGES}.test_what_the_control_group_cannot_have_answered_is_seen:0"],
    ),
    Mutant(
        "decisions-of-another-group-taken",
        "a group takes over decisions of whoever answers, the control group or not",
        [
            Edit(
                "dledger_broker.cluster.topic_pages:check_page",
                "(reply.cluster, reply.group) != (cluster, control_group)",
                "not reply.group",
            )
        ],
        [f"{PAGES}.test_what_the_control_group_cannot_have_answered_is_seen:3"],
    ),
    Mutant(
        "page-drops-decisions-of-one-entry",
        "a page tells that all is known up to its last topic, which others share an entry with",
        [
            Edit(
                "dledger_broker.cluster.topic_pages:topics_page",
                "last.control_index - 1",
                "last.control_index",
            )
        ],
        [f"{PAGES}.test_what_changes_between_two_pages_is_not_missed"],
    ),
    Mutant(
        "groups-without-a-route-are-not-asked",
        "a message is told as not there, although a group that nobody asked has it (D11)",
        [
            Edit(
                "dledger_client._core.routes:RouteTable.group_names",
                "(*self._groups, *named)",
                "self._groups",
            )
        ],
        ["unit.client.test_routes.test_a_topic_names_groups_without_a_route"],
    ),
    Mutant(
        "closed-consumer-reads-on",
        "a client that hears of a new leader while it closes opens a stream that nobody ends",
        [
            Edit(
                "dledger_client._shell.driver:Driver._routes_changed",
                "if self.is_stopped:",
                "if False:",
            )
        ],
        [
            "unit.client.test_closed_clients."
            "test_a_closed_consumer_reads_nothing_whatever_the_others_are_told"
        ],
    ),
)
