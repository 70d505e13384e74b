"""Known bugs of users in the replicated state, and of groups that follow them."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

COMMANDS: Final = "dledger.state.users.commands"
STATE: Final = "unit.state.test_users"
FORWARDED: Final = "unit.broker.test_forwarded_calls"

USER_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "users-go-back-to-an-older-list",
        "a range of an older list is taken over: a right that was taken away is there again",
        [Edit(f"{COMMANDS}:ImportUsers.apply", "if self.revision < known.newest:", "if False:")],
        [f"{STATE}.test_nothing_goes_back_to_an_older_list"],
    ),
    Mutant(
        "deleted-users-stay-in-a-range",
        "a range adds users and leaves those that it does not name",
        [Edit(f"{COMMANDS}:ImportUsers.apply", "if name not in names]", "if False]")],
        [f"{STATE}.test_a_range_says_who_is_there"],
    ),
    Mutant(
        "a-list-with-a-gap-counts-as-known",
        "the last range sets the revision, whether or not those before it came",
        [
            Edit(
                f"{COMMANDS}:ImportUsers._covered",
                "if self.first > covered:",
                "if False:",
            )
        ],
        [f"{STATE}.test_a_list_is_known_when_its_ranges_meet"],
    ),
    Mutant(
        "the-last-administrator-can-be-deleted",
        "a slip leaves a cluster that only whoever has a member's certificate can administer",
        [
            Edit(
                f"{COMMANDS}:DeleteUser.apply",
                "if state.users.is_last_administrator(self.name):",
                "if False:",
            )
        ],
        [f"{STATE}.test_the_last_administrator_that_can_log_in_stays"],
    ),
    Mutant(
        "an-older-change-of-a-user-wins",
        "what one administrator changed is undone by another that has not seen it",
        [
            Edit(
                f"{COMMANDS}:PutUser.apply",
                "if self.known_revision and self.known_revision < revision:",
                "if False:",
            )
        ],
        [f"{STATE}.test_a_change_of_what_changed_since_is_refused"],
    ),
    Mutant(
        "credentials-are-printed",
        "a line of a log, or dledger inspect, has what a secret can be guessed by",
        [
            Edit(
                "dledger.state.users.values:Credentials.describe",
                'return "(kept)"',
                'return f"({self.rounds} {self.salt.hex()} {self.stored_key.hex()})"',
            )
        ],
        [f"{STATE}.test_nobody_prints_credentials"],
    ),
    Mutant(
        "topics-are-followed-before-users",
        "for a while a group knows a topic, and not who is denied it",
        [
            Edit(
                "dledger_broker.cluster.topic_follower:TopicFollower._pull",
                "await self._users.follow(member, term)\n"
                "                await self._follow_pages(member, term)",
                "await self._follow_pages(member, term)\n"
                "                await self._users.follow(member, term)",
            )
        ],
        ["unit.broker.test_users.test_users_come_before_topics"],
    ),
    Mutant(
        "a-late-creation-brings-a-user-back",
        "a copy of a creation that was on the way for long undoes a deletion",
        [
            Edit(
                "dledger_broker.users.authority:UserAuthority.put",
                "request.known_revision or (0 if request.create else revision)",
                "0 if request.create else request.known_revision or revision",
            )
        ],
        ["unit.broker.test_users.test_a_late_copy_of_a_creation_brings_back_nobody"],
    ),
    Mutant(
        "pages-of-two-lists-are-one",
        "a list that changes between two pages is taken for one list",
        [
            Edit(
                "dledger_broker.users.following:UserFollower._take_list",
                "if reply.revision != revision:",
                "if False:",
            )
        ],
        ["unit.broker.test_users.test_a_list_that_changes_while_it_is_read_is_read_again"],
    ),
    Mutant(
        "a-no-is-final-where-nobody-leads",
        "a member that is cut off ends the read of a user that got the right meanwhile",
        [
            Edit(
                "dledger_broker.security.gate:Gate.confirmed",
                "if not is_current:",
                "if False:",
            )
        ],
        ["unit.security.test_gate.test_nobody_is_refused_by_what_is_out_of_date"],
    ),
    Mutant(
        "a-producer-belongs-to-everybody",
        "whoever reads message ids ends the producer that wrote them, and follows it",
        [
            Edit(
                "dledger.state.producers.registration:RegisterProducer._verdict",
                "if producer.is_anothers(self.user):",
                "if False:",
            )
        ],
        ["unit.state.test_producer_owners.test_a_producer_belongs_to_who_registered_it_first"],
    ),
    Mutant(
        "a-batch-may-be-of-any-producer",
        "a user takes the next sequence of another's producer, whose own batch is then a repeat",
        [
            Edit(
                "dledger_broker.append.intake:_Sender.may_send",
                "is_own = self._rule.refusal_of_producer(header, caller.name) is None",
                "is_own = True",
            )
        ],
        ["unit.broker.test_senders.test_nobody_sends_as_the_producer_of_another_user"],
    ),
    Mutant(
        "an-unknown-producer-is-anybodys",
        "a user writes as a producer that another one is just registering",
        [
            Edit(
                "dledger.state.users.queries:UserQueries.refusal_of_producer",
                "return refusal_of_unknown(producer_id)",
                "return None",
            )
        ],
        ["unit.state.test_producer_owners.test_a_producer_nobody_registered_is_nobodys"],
    ),
    Mutant(
        "the-audit-misses-what-the-state-refuses",
        "whoever tries the ids of producers leaves no trace",
        [
            Edit(
                "dledger_broker.rpc.calls:Calls._execute_noting",
                "if error.code is Code.NO_PERMISSION:",
                "if False:",
            )
        ],
        ["unit.broker.test_table.test_the_audit_has_what_the_state_refuses"],
    ),
    Mutant(
        "a-call-that-is-passed-on-is-nobodys",
        "whoever asks a follower registers the producer of another user",
        [
            Edit(
                "dledger_broker.rpc.calls:Calls._on_leader",
                "(USER_KEY, call.user)",
                '(USER_KEY, "")',
            )
        ],
        ["unit.broker.test_table.test_a_call_that_a_member_passes_on_says_whose_it_is"],
    ),
    Mutant(
        "a-call-for-the-control-group-is-nobodys",
        "a user by members of other groups takes more than its share of the control group's leader",
        [
            Edit(
                "dledger_broker.rpc.calls:Calls._forward_to_control_group",
                "(USER_KEY, call.user)",
                '(USER_KEY, "")',
            )
        ],
        [f"{FORWARDED}.test_a_call_for_the_control_group_says_whose_it_is_on_both_hops"],
    ),
    Mutant(
        "a-client-says-whose-call-it-is",
        "a header of a client counts, so it registers as whom it likes",
        [
            Edit(
                "dledger_broker.rpc.calls:Call.user",
                'return self.caller.name or (self.metadata.get(USER_KEY, "") if is_of_member '
                'else "")',
                'return self.metadata.get(USER_KEY, "") or self.caller.name',
            )
        ],
        ["unit.broker.test_table.test_a_call_that_a_member_passes_on_says_whose_it_is"],
    ),
    Mutant(
        "anybody-says-whose-call-it-is-without-tls",
        "whoever connects before users are on keeps their producers' ids from them afterwards",
        [
            Edit(
                "dledger_broker.rpc.calls:Call.user",
                "is_of_member = self.is_forwarded and self.gate.access.proves",
                "is_of_member = self.is_forwarded",
            )
        ],
        [f"{FORWARDED}.test_without_tls_nobody_says_whose_call_it_is"],
    ),
    Mutant(
        "one-user-takes-all-streams",
        "a user with many streams keeps everybody else out",
        [
            Edit(
                "dledger_broker.rpc.admission:Bound._check_share",
                "if self._of_users[user] >= self._user_limit:",
                "if False:",
            )
        ],
        ["unit.broker.test_admission.test_one_user_leaves_room_for_the_others"],
    ),
    Mutant(
        "one-user-takes-all-calls-of-the-leader",
        "each follower gives a user half of what the leader takes from all",
        [
            Edit(
                "dledger_broker.rpc.calls:Calls.answer",
                "with self.admission.share(row.work, call.user):",
                "with self.admission.share(row.work, call.caller.name):",
            )
        ],
        [f"{FORWARDED}.test_calls_that_members_pass_on_count_for_their_user"],
    ),
)
