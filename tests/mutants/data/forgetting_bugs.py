"""Known bugs of what is forgotten in steps: producers that expired, and deleted topics."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

STATE: Final = "dledger.state"
FORGETTING: Final = "test_forgetting"
PAGES: Final = "unit.broker.test_topic_pages"
GROUPS: Final = "unit.broker.test_forgotten_topics"

FORGETTING_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "forgets-while-progress-is-swept",
        "a topic's id is given anew while rows of progress of the old topic are left (D1, I17)",
        [
            Edit(
                "dledger.state.topics.commands:ForgetTopics.apply",
                "state.sweeps if self.waits_for_all else",
                "",
            )
        ],
        [
            "unit.state.test_forgotten_topics."
            'test_an_id_is_kept_until_all_rows_of_its_topic_are_swept:"progress"'
        ],
    ),
    Mutant(
        "half-forgotten-producer-writes",
        "a producer of which some rows are gone already goes on in its epoch (I9)",
        [
            Edit(
                "dledger.state.producers.table:ProducerTable.find",
                "producer is None or producer.is_half_forgotten",
                "producer is None",
            )
        ],
        [f"{FORGETTING}.test_a_half_forgotten_producer_stores_nothing"],
    ),
    Mutant(
        "half-forgotten-producer-tells-half",
        "who registers a half forgotten producer is told the rows that are left as all (D11)",
        [
            Edit(
                "dledger.state.producers.registration:RegisterProducer.apply",
                "min(max(first_epoch, producer.epoch + 2), EPOCH_MAX)",
                "producer.epoch + 1",
            )
        ],
        [f"{FORGETTING}.test_a_half_forgotten_producer_that_registers_begins_above_its_past"],
    ),
    Mutant(
        "forgetting-goes-on-where-it-was",
        "what a producer wrote since it came back stays when it is forgotten again",
        [
            Edit(
                "dledger.state.producers.registration:RegisterProducer.apply",
                'producers.forget_at = b""',
                "pass",
            )
        ],
        [f"{FORGETTING}.test_a_producer_is_forgotten_whole_however_often_it_came_back"],
    ),
    Mutant(
        "producers-keep-deleted-topics",
        "the deletion of a topic leaves what producers hold of it",
        [
            Edit(
                "dledger.state.state:State.free_deleted_topics",
                "sweep.start()",
                "pass",
            )
        ],
        [f"{FORGETTING}.test_nothing_of_a_deleted_topic_stays_with_a_producer"],
    ),
    Mutant(
        "late-creation-brings-a-topic-back",
        "a copy of a creation that comes after the topic was deleted and forgotten creates it (D1)",
        [
            Edit(
                "dledger.state.topics.commands:CreateTopic.apply",
                "if self.known_index < topics.floor:",
                "if False:",
            )
        ],
        [f"{FORGETTING}.test_a_late_copy_of_a_creation_brings_no_topic_back"],
    ),
    Mutant(
        "late-import-brings-a-topic-back",
        "a group takes over again what it knew, forgot, and is told late (D1)",
        [
            Edit(
                "dledger.state.topics.commands:_not_imported",
                "if topic.control_index <= topics.floor:",
                "if False:",
            )
        ],
        [f"{FORGETTING}.test_a_late_copy_of_an_import_brings_no_topic_back"],
    ),
    Mutant(
        "swept-rows-stay-in-memory",
        "a member that was up all the time knows what it has deleted, others do not (I4)",
        [
            Edit(
                "dledger.state.producers.table:ProducerTable.delete_queue",
                "self._queues.pop((key[1:17], key[17:33], KEY_U32.unpack(key[33:])[0]), None)",
                "pass",
            )
        ],
        [f"{FORGETTING}.test_members_agree_about_a_topic_whose_id_was_given_before"],
    ),
    Mutant(
        "forgets-before-rows-are-deleted",
        "a topic is forgotten while its rows wait to be deleted, and the next of its id loses rows",
        [
            Edit(
                "dledger.state.topics.commands:ForgetTopics.apply",
                "not state.garbage.is_empty or",
                "",
            )
        ],
        [f"{FORGETTING}.test_what_waits_to_be_deleted_takes_nothing_of_a_topic_of_the_same_id"],
    ),
    Mutant(
        "any-control-group-decides",
        "a control group formed anew under the same name deletes topics it never heard of (D1)",
        [
            Edit(
                "dledger.state.topics.table:TopicTable.foreign",
                'if self._control_id in (b"", control_id):',
                "if True:",
            )
        ],
        [f"{FORGETTING}.test_decisions_of_another_control_group_change_nothing"],
    ),
    Mutant(
        "restored-control-group-decides",
        "a control group restored from an old copy is followed, whose indexes were given before",
        [
            Edit(
                "dledger_broker.cluster.topic_pages:check_history",
                "if reply.confirmed_index < newest:",
                "if False:",
            )
        ],
        [f"{PAGES}.test_a_control_group_restored_from_an_old_copy_is_not_followed"],
    ),
    Mutant(
        "forgets-above-a-gap",
        "a group forgets deletions above what it knows, and refuses what it has not heard yet (D1)",
        [
            Edit(
                "dledger.state.topics.table:TopicTable.forgettable",
                "if each[1].control_index <= known_index",
                "if True",
            )
        ],
        [f"{FORGETTING}.test_a_group_forgets_no_deletion_above_what_it_knows_without_a_gap"],
    ),
    Mutant(
        "head-counts-as-whole-again",
        "when all deleted topics are forgotten a restart takes the log's head for needed",
        [Edit("dledger.state.topics.table:TopicTable.was_deleted", "bool(self._floor) or", "")],
        [f"{FORGETTING}.test_a_member_that_starts_again_knows_that_its_head_was_trimmed"],
    ),
    Mutant(
        "forgotten-deletion-is-never-heard-of",
        "a group that missed a deletion keeps the topic when the control group has forgotten it",
        [
            Edit(
                "dledger_broker.cluster.topic_follower:TopicFollower._follow_pages",
                "if reply.forgotten_index > floor:",
                "if False:",
            )
        ],
        [f"{GROUPS}.test_a_group_that_missed_a_deletion_learns_of_it_though_it_is_forgotten:true"],
    ),
    Mutant(
        "looking-before-a-creation-creates",
        "the first step of a creation creates the topic: a late copy of it does, too",
        [
            Edit(
                "dledger_broker.cluster.topic_authority:TopicAuthority.create",
                "if request.topic_id and not request.known_index:",
                "if False:",
            )
        ],
        ["unit.broker.test_topic_authority.test_who_draws_the_id_asks_for_an_index_first"],
    ),
)
