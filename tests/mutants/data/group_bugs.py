"""Known bugs of consumer groups as objects of the cluster (D20)."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

GROUPS: Final = "dledger.state.consumers.groups"
STATE: Final = "unit.state.test_consumer_groups"
WIDENING: Final = "unit.broker.test_widening"
AUTHORITY: Final = "unit.broker.test_consumer_group_authority"

GROUP_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "late-creation-of-a-group",
        "a late copy of a creation brings a deleted consumer group back",
        [
            Edit(
                f"{GROUPS}:CreateConsumerGroup.apply",
                "if self.known_index < topics.floor:",
                "if False:",
            )
        ],
        [f"{STATE}.test_a_late_copy_of_a_creation_creates_nothing"],
    ),
    Mutant(
        "deleted-group-keeps-its-dead-letters",
        "the deletion of a consumer group leaves the topic of its dead letters",
        [
            Edit(
                f"{GROUPS}:DeleteConsumerGroup.apply",
                "for topic in (dead, retry):",
                "for topic in (retry,):",
            )
        ],
        [f"{STATE}.test_deletion_takes_both_topics_and_frees_the_name"],
    ),
    Mutant(
        "update-takes-all-settings",
        "a change of one setting undoes what another caller changed meanwhile",
        [
            Edit(
                f"{GROUPS}:UpdateConsumerGroup.apply",
                "for field in self.fields",
                "for field in CHANGEABLE",
            )
        ],
        [f"{STATE}.test_an_update_changes_what_it_names"],
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
        [f"{STATE}.test_the_topics_of_a_group_are_not_deleted_alone"],
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
