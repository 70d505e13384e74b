"""What tests of consumer groups share: a machine with a topic and a consumer group."""

from dataclasses import replace

from dledger.state.consumers.settings import GroupSettings
from dledger.state.topics.commands import ImportTopic
from dledger.state.values import LayoutPart, Topic, TopicType
from tests.unit.state.kit import GROUP, Driven, started

BILLING = b"B" * 16
"""The id of the group `billing`, which is that of its retry topic."""
DEAD_LETTERS = b"D" * 16
SETTINGS = GroupSettings(GROUP, DEAD_LETTERS)


def of_group(topic_id: bytes, name: str, control_index: int, *settings: GroupSettings) -> Topic:
    """Return a topic of a consumer group; with settings its retry topic."""
    layout = (LayoutPart(GROUP, 1),)
    return Topic(
        topic_id, name, TopicType.NORMAL, 1, layout, 1, 1, 4, control_index, settings=settings
    )


def with_group(
    settings: GroupSettings,
    *,
    driven: Driven | None = None,
    create: bool = True,
    group_id: bytes = BILLING,
) -> Driven:
    """Return a machine with a topic of four queues and the consumer group `billing`."""
    driven = driven or started()
    if create:
        dead = bytes((group_id[0] + 2,)) * 16
        settings = replace(settings, dead_letter_topic_id=dead)
        index = len(driven.log.entries) + 1
        driven.one(ImportTopic(of_group(dead, "%DLQ%billing", index)))
        driven.one(ImportTopic(of_group(group_id, "%RETRY%billing", index + 1, settings)))
    return driven
