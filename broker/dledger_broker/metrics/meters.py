"""What the hot path counts, in plain integers: a scrape alone makes series of them.

Owns: the counts. Pure. Counts are of this process: they begin at 0 with it. What the live state
tells anyhow is not counted.
"""

from collections import Counter
from typing import Final

from dledger.raft.api import Leadership
from dledger.trace import Trace
from dledger.types import MemberId, Term
from dledger_monitoring.histogram import MESSAGE_BYTES, MILLISECONDS, SECONDS, Histogram
from dledger_proto.errors import Code

TOPICS_METERED_MAX: Final = 16_384
"""Topics that are counted by themselves; the sums count those beyond, too."""


class Traffic:
    """Messages and bytes in one direction."""

    __slots__ = ("by_topic", "messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.by_topic: dict[bytes, list[int]] = {}
        """Messages and bytes by topic id."""

    def add(self, topic_id: bytes, messages: int, size: int) -> None:
        """Count some messages of a topic."""
        self.messages += messages
        self.size += size
        counts = self.by_topic.get(topic_id)
        if counts is not None:
            counts[0] += messages
            counts[1] += size
        elif len(self.by_topic) < TOPICS_METERED_MAX:
            self.by_topic[topic_id] = [messages, size]


class GroupMeters:
    """What happens in one broker group of the process."""

    def __init__(self) -> None:
        self.stored = Traffic()
        self.fetched = Traffic()
        self.message_sizes = Histogram(MESSAGE_BYTES)
        self.write_seconds = Histogram(SECONDS)
        self.append_seconds = Histogram(SECONDS)
        self.events: Counter[str] = Counter()
        self.connects: Counter[str] = Counter()
        """How often each peer accepted our link."""
        self.leader_changes = 0
        self._leader: tuple[Term, MemberId] | None = None

    def batch_stored(self, topic_id: bytes, messages: int, size: int) -> None:
        """Count a batch that a queue or a timer has taken, once."""
        self.stored.add(topic_id, messages, size)
        self.message_sizes.add(size / messages, messages)

    def leadership_changed(self, now: Leadership) -> None:
        """Count a leader that was not known, or leads in another term; see `watch_leadership`."""
        if now.leader is not None and (now.term, now.leader) != self._leader:
            self._leader = (now.term, now.leader)
            self.leader_changes += 1


class ProcessMeters:
    """What happens in the process, whichever group it concerns."""

    def __init__(self) -> None:
        self.refused: Counter[Code] = Counter()
        self.calls: dict[str, Histogram] = {}

    def called(self, name: str, seconds: float) -> None:
        """Count a unary call that ended."""
        calls = self.calls.get(name)
        if calls is None:
            calls = self.calls[name] = Histogram(MILLISECONDS)
        calls.add(1_000 * seconds)


class CountedTrace:
    """Counts the events of a group, and passes them on. See `dledger.trace.Trace`."""

    def __init__(self, trace: Trace, meters: GroupMeters) -> None:
        self._trace = trace
        self._meters = meters

    def event(self, name: str, **fields: object) -> None:
        """Count it by its name; a link that stands also by its peer."""
        self._meters.events[name] += 1
        if name == "link_up":
            self._meters.connects[str(fields["peer"])] += 1
        self._trace.event(name, **fields)
