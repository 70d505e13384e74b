"""Which topics and groups get series of their own: a bound, and how many are left out. Pure."""

from collections.abc import Iterable
from typing import Final

from dledger.state.values import Topic
from dledger_proto.names import GROUP_TOPIC_PREFIXES

YES: Final = "true"
NO: Final = "false"


def is_system(topic: str) -> str:
    """Return the label that tells topics of consumer groups from those of people."""
    return YES if topic.startswith(GROUP_TOPIC_PREFIXES) else NO


def cut(topics: Iterable[Topic], most: int) -> tuple[list[Topic], int]:
    """Return the topics that get series, and how many are left out.

    Those of people come first, then by name: so the same ones at each scrape.
    """
    found = sorted(topics, key=lambda topic: (is_system(topic.name), topic.name))
    return found[:most], max(len(found) - most, 0)
