"""Dead letters: listed in pages, sent to their group again, dropped.

Not owned: the rules (`dledger.state.progress.dead_letters`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dledger.state.progress.dead_letters import SettleDeadLetters
from dledger.state.values import DeadLetter
from dledger_broker.usecases.messaging import Messaging
from dledger_proto.errors import Code, invalid
from dledger_proto.limits import QUEUES_PER_TOPIC_MAX
from dledger_proto.names import check_group_name

LETTERS_DEFAULT: Final = 100
LETTERS_PER_PAGE_MAX: Final = 1_000


class Page(NamedTuple):
    """Dead letters, each with the name of the topic it comes from."""

    queue: int
    letters: list[tuple[DeadLetter, str]]
    following: int
    """Where the next page begins; -1: this is the last one."""


async def list_dead_letters(
    messaging: Messaging, consumer_group: str, offset: int, limit: int
) -> Page:
    """Return a page of the dead letters that are not settled, behind a read barrier."""
    check_group_name("consumer_group", consumer_group)
    if limit > LETTERS_PER_PAGE_MAX:
        raise invalid(f"limit {limit}, must be 1 to {LETTERS_PER_PAGE_MAX}")
    await messaging.view.confirm()
    queries = messaging.view.machine.queries
    queue, letters, following = queries.dead_letters(consumer_group, offset, limit)
    named: list[tuple[DeadLetter, str]] = []
    for letter in letters:
        topic = queries.topic_by_id(letter.origin.topic_id)
        named.append((letter, "" if topic is None or topic.deleted else topic.name))
    return Page(queue, named, following)


async def settle(
    messaging: Messaging,
    consumer_group: str,
    queue: int,
    offsets: Sequence[int],
    *,
    resend: bool,
    resent_max: int,
) -> Sequence[Code]:
    """Send dead letters again, or drop them; return OK or why not of each."""
    check_group_name("consumer_group", consumer_group)
    if queue >= QUEUES_PER_TOPIC_MAX:
        raise invalid(f"queue {queue}, must be below {QUEUES_PER_TOPIC_MAX}")
    command = SettleDeadLetters(consumer_group, queue, tuple(offsets), resend, resent_max)
    return (await messaging.view.commands.propose(command)).codes
