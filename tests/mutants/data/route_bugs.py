"""Known bugs of the name server: who is believed (D14, I17)."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

GROUP: Final = "dledger_namesrv.groups:BrokerGroup"
SCRIPTS: Final = "unit.namesrv.test_claims"

ROUTE_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "one-claim-is-enough",
        "a claim of a higher term counts, whatever the other members that are heard tell",
        [Edit(f"{GROUP}.weigh", "and self._is_agreed(member.term)", "")],
        [f"{SCRIPTS}.test_a_wild_term_of_one_member_does_not_displace_what_the_others_claim"],
    ),
    Mutant(
        "term-outlives-its-leases",
        "a term that nobody tells of any more keeps the claims of those who are listed out",
        [Edit(f"{GROUP}.weigh", "if self.term and all(", "if False and all(")],
        [f"{SCRIPTS}.test_a_term_is_forgotten_with_the_last_lease_of_who_told_it"],
    ),
    Mutant(
        "strangers-belong-to-a-group",
        "whoever registers for a group is in its routes, and his claims and topics are taken",
        [Edit(f"{GROUP}.has", "not self.configured or name in self.configured", "True")],
        [f"{SCRIPTS}.test_a_stranger_is_no_member_and_counts_for_nothing"],
    ),
    Mutant(
        "first-configuration-stays",
        "a list of members stays the group's when most of another list's own members tell that one",
        [Edit(f"{GROUP}.count", "if told[self.configured] < most:", "if not self.configured:")],
        [f"{SCRIPTS}.test_who_was_there_first_is_outvoted_by_a_group_that_agrees"],
    ),
    Mutant(
        "any-group-decides-about-topics",
        "the highest index counts, whoever tells it: one registration changes all routes",
        [Edit("dledger_namesrv.topics:TopicRow.take", "if control in self.told:", "if False:")],
        [f"{SCRIPTS}.test_a_strange_group_decides_about_no_topic:true"],
    ),
    Mutant(
        "what-was-told-outlives-who-told-it",
        "a topic's row that only a group told that is listed no more stays in the routes",
        [
            Edit(
                "dledger_namesrv.topics:TopicTable.drop_group",
                "elif row.leave(group, self.control):",
                "elif row.told.pop(group) is None:",
            )
        ],
        [f"{SCRIPTS}.test_what_a_group_told_of_a_topic_goes_with_it:true"],
    ),
    Mutant(
        "leader-name-of-any-size",
        "the name of a leader has no limit, and goes to every watcher",
        [
            Edit(
                "dledger_namesrv.intake:check_registration",
                '        _check_name("leader", registration.leader)\n',
                "        pass\n",
            )
        ],
        [f'{SCRIPTS}.test_every_field_has_a_limit_and_what_is_beyond_changes_nothing:"leader"'],
    ),
)
