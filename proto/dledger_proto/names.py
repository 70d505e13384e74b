"""The rule for names that users choose: topics, consumer groups, owners of holds (S33).

It is the rule of RocketMQ, so that names of RocketMQ's users work here. It also keeps control
characters and spaces out of lines, keys and files that hold a name. Operators name clusters, broker
groups and members; for those the configuration of a member has a stricter rule.
"""

import re
from typing import Final
from unicodedata import category

from dledger_proto.errors import DledgerError, invalid
from dledger_proto.limits import GROUP_NAME_LENGTH_MAX, TOPIC_NAME_LENGTH_MAX

NAME_RULE: Final = "only letters, digits, % | _ and - are allowed"
NO_SUCH_TOPIC: Final = "%NONE%"
"""The name to ask for when only the routes of groups are wanted. No topic can have this name."""
RETRY_TOPIC_PREFIX: Final = "%RETRY%"
DEAD_LETTER_TOPIC_PREFIX: Final = "%DLQ%"
GROUP_TOPIC_PREFIXES: Final = (RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX)
"""How the names of the two topics of a consumer group begin."""
CLIENT_ID_LENGTH_MAX: Final = 255
"""Length of the id that a consumer gives itself; RocketMQ's ids are like 10.0.0.1@4711#8812."""
USER_NAME_LENGTH_MAX: Final = 64
_USER_NAME: Final = re.compile(r"[a-zA-Z0-9._@-]+")
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_SHOWN_LENGTH_MAX: Final = 40


def check_topic_name(name: str) -> None:
    """Raise INVALID_ARGUMENT unless a topic may have this name."""
    check_name("topic name", name, TOPIC_NAME_LENGTH_MAX)


def check_group_name(field: str, name: str) -> None:
    """Raise INVALID_ARGUMENT unless a consumer group, or the owner of a hold, may have it."""
    check_name(field, name, GROUP_NAME_LENGTH_MAX)


def check_name(field: str, name: str, length_max: int) -> None:
    """Raise INVALID_ARGUMENT, naming field, value and limit, unless the name keeps the rule."""
    if not 1 <= len(name) <= length_max:
        raise _refusal(field, name, f"has {len(name)} characters, must be 1 to {length_max}")
    if not _NAME.fullmatch(name):
        raise _refusal(field, name, NAME_RULE)


def check_user_name(field: str, name: str) -> None:
    """Raise INVALID_ARGUMENT unless a user may have this name."""
    if not 1 <= len(name) <= USER_NAME_LENGTH_MAX:
        raise _refusal(
            field, name, f"has {len(name)} characters, must be 1 to {USER_NAME_LENGTH_MAX}"
        )
    if not _USER_NAME.fullmatch(name):
        raise _refusal(field, name, "only letters, digits, . _ - and @ are allowed")


def check_client_id(field: str, value: str) -> None:
    """Raise INVALID_ARGUMENT unless it is short and printable; it may be empty."""
    if len(value) > CLIENT_ID_LENGTH_MAX:
        limit = f"has {len(value)} characters, at most {CLIENT_ID_LENGTH_MAX}"
        raise _refusal(field, value, limit)
    if not value.isprintable():
        raise _refusal(field, value, "only printable characters are allowed")


def printable(text: str) -> str:
    """Return the text with every character that is not printable as an escape, for one line.

    Blanks of all widths stay: Python calls only one of them printable.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or category(c) == "Zs" else repr(c)[1:-1] for c in text)


def escaped(text: str) -> str:
    """Return what `printable` does, with each backslash doubled: no two texts give the same."""
    return printable(text.replace("\\", "\\\\"))


def _refusal(field: str, value: str, limit: str) -> DledgerError:
    more = "..." if len(value) > _SHOWN_LENGTH_MAX else ""
    shown = f"{value[:_SHOWN_LENGTH_MAX]!r}{more}"
    return invalid(f"{field} {shown}: {limit}")


def holds_references(topic: str) -> bool:
    """Tell whether a topic's records are delivered again, and are so batches of other topics."""
    return topic.startswith((RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX))
