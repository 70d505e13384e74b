"""What a topic may look like: its layout over groups, its numbers of queues, its permission (D14).

A layout keeps the closed queues: whoever opens one again finds the group that holds its messages.
"""

from itertools import groupby

from dledger.state.values import PERMISSION_READ, PERMISSION_WRITE, LayoutPart, Topic, TopicType
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import (
    GROUP_NAME_LENGTH_MAX,
    QUEUES_PER_TOPIC_MAX,
    RETENTION_BY_KEY,
    RETENTION_DEFAULT,
    RETENTION_FOREVER,
    TIME_MS_MAX,
)
from dledger_proto.names import GROUP_TOPIC_PREFIXES, check_name, check_topic_name


def check_layout(layout: tuple[LayoutPart, ...]) -> None:
    """Raise INVALID_ARGUMENT unless every part names a group and the queues keep their limit."""
    if not layout:
        raise _invalid("layout has no part")
    for part in layout:
        for name in part.group.split("@", 1):  # it may begin with a machine room: room@name
            check_name("layout: group", name, GROUP_NAME_LENGTH_MAX)
        if part.queues < 1:
            raise _invalid(f"layout: group {part.group} has {part.queues} queues, at least 1")
    total = queues_of(layout)
    if total > QUEUES_PER_TOPIC_MAX:
        raise _invalid(f"layout has {total} queues, at most {QUEUES_PER_TOPIC_MAX}")


def check_topic(topic: Topic) -> None:
    """Raise INVALID_ARGUMENT naming the first field outside its limit."""
    check_topic_name(topic.name)
    check_layout(topic.layout)
    if topic.topic_id == bytes(16):
        raise _invalid("topic_id is all zero")
    total = queues_of(topic.layout)
    if not 1 <= topic.write_queues <= total:
        raise _invalid(f"write_queues {topic.write_queues}, 1 to {total}")
    if not 1 <= topic.read_queues <= total:
        raise _invalid(f"read_queues {topic.read_queues}, 1 to {total}")
    if len(topic.settings) > 1:
        raise _invalid(f"settings of {len(topic.settings)} consumer groups, at most 1")
    for settings in topic.settings:
        settings.check()
    _check_retention(topic)
    if not 0 < topic.permission <= PERMISSION_READ | PERMISSION_WRITE or topic.permission & 1:
        raise _invalid(f"permission {topic.permission}: 4 (read), 2 (write) or 6")


def _check_retention(topic: Topic) -> None:
    time_ms, size = topic.retention
    special = (RETENTION_DEFAULT, RETENTION_FOREVER, RETENTION_BY_KEY)
    if time_ms not in special and time_ms > TIME_MS_MAX:
        raise _invalid(f"retention time {time_ms} ms, at most {TIME_MS_MAX}")
    if not topic.is_compacted:
        return
    if size != RETENTION_DEFAULT:
        raise _invalid(f"retention size {size} of a topic with cleanup compact: it has no bound")
    if topic.type is TopicType.DELAY:
        raise _invalid("cleanup compact of a topic of type delay: its messages wait for their time")
    if topic.name.startswith(GROUP_TOPIC_PREFIXES):
        raise _invalid("cleanup compact of a topic of a consumer group")


def queues_of(layout: tuple[LayoutPart, ...]) -> int:
    """Return how many queues a layout has, over all parts."""
    return sum(part.queues for part in layout)


def first_queues(layout: tuple[LayoutPart, ...], count: int) -> tuple[LayoutPart, ...]:
    """Return the layout of a layout's first queues, neighbours of one group as one part."""
    parts: list[LayoutPart] = []
    for group, same in groupby(layout, lambda part: part.group):
        queues = min(sum(part.queues for part in same), count)
        if queues > 0:
            parts.append(LayoutPart(group, queues))
        count -= queues
    return tuple(parts)


def grown(known: tuple[LayoutPart, ...], wanted: tuple[LayoutPart, ...]) -> tuple[LayoutPart, ...]:
    """Return the longer of two layouts; INVALID_ARGUMENT when they disagree about a queue.

    What was written to a queue lies with its group, and readers know offsets of it: were the number
    given to another group, they would go on there in another log, closed for a while or not.
    """
    ours, theirs = _owners(known), _owners(wanted)
    for queue, (old, new) in enumerate(zip(ours, theirs, strict=False)):
        if old != new:
            raise _invalid(
                f"layout moves queue {queue} from group {old} to {new}: a queue stays with its "
                f"group, also when it is closed; new ones are numbered from {len(ours)} on"
            )
    longer = max(known, wanted, key=queues_of)
    return first_queues(longer, queues_of(longer))


def _owners(layout: tuple[LayoutPart, ...]) -> list[str]:
    return [part.group for part in layout for _ in range(part.queues)]


def with_read(layout: tuple[LayoutPart, ...], read_queues: int) -> tuple[LayoutPart, ...]:
    """Return a new topic's layout with all the queues that are read (S22).

    INVALID_ARGUMENT when it says not whose the missing ones are, or they would be too many.
    """
    total = queues_of(layout)
    if read_queues <= total:
        return layout
    if read_queues > QUEUES_PER_TOPIC_MAX:
        raise _invalid(f"read_queues {read_queues}, at most {QUEUES_PER_TOPIC_MAX}")
    groups = {part.group for part in layout}
    if len(groups) != 1:
        raise _invalid(
            f"read_queues {read_queues}, at most {total}: more than take messages has only a topic "
            "of one group"
        )
    return (LayoutPart(groups.pop(), read_queues),)


def _invalid(sentence: str) -> DledgerError:
    return DledgerError(Code.INVALID_ARGUMENT, sentence)
