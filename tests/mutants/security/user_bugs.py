"""Known bugs of users in the replicated state, and of groups that follow them."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

COMMANDS: Final = "dledger.state.users.commands"
STATE: Final = "unit.state.test_users"

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
)
