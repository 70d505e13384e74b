"""Messages and bytes in and out, by topic.

Owns: which topics get series (`cut.py` has the bound), and that counts of deleted topics go. Sums
over all topics of a broker group have series of their own.
"""

from collections.abc import Iterator

from dledger.state.values import Topic
from dledger_broker.group.group_view import GroupView
from dledger_broker.metrics import catalogue as series
from dledger_broker.metrics.cut import cut, is_system
from dledger_broker.metrics.meters import Traffic
from dledger_monitoring.series import Sheet

TOPICS_A_STEP = 64


class OfTopics:
    """The series of one group's topics."""

    def __init__(self, view: GroupView, series_max: int) -> None:
        self._view = view
        self._series_max = series_max

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write all values; see `exposition.Source`."""
        view, group = self._view, self._view.names.group
        stored, fetched = view.meters.stored, view.meters.fetched
        sheet.put(series.ALL_MESSAGES_IN, stored.messages, group)
        sheet.put(series.ALL_BYTES_IN, stored.size, group)
        sheet.put(series.ALL_MESSAGES_OUT, fetched.messages, group)
        sheet.put(series.ALL_BYTES_OUT, fetched.size, group)
        sheet.put_all(series.MESSAGE_SIZE, view.meters.message_sizes, group)
        topics = view.machine.queries.topics()
        people = sum(is_system(topic.name) == "false" for topic in topics)
        sheet.put(series.TOPICS, people, group)
        sheet.put(series.CONSUMER_GROUPS, len(view.machine.queries.consumer_groups()), group)
        yield
        live = {topic.topic_id: topic for topic in topics}
        _forget(stored, live)
        _forget(fetched, live)
        counted = (stored.by_topic.keys() | fetched.by_topic.keys()) & live.keys()
        chosen, left_out = cut((live[topic_id] for topic_id in counted), self._series_max)
        sheet.put(series.LEFT_OUT, left_out, group, "topics")
        yield
        for at, topic in enumerate(chosen):
            self._topic(sheet, topic)
            if at % TOPICS_A_STEP == 0:
                yield

    def _topic(self, sheet: Sheet, topic: Topic) -> None:
        meters = self._view.meters
        labels = self._view.names.group, topic.name, is_system(topic.name)
        put_in = meters.stored.by_topic.get(topic.topic_id)
        if put_in is not None:
            sheet.put(series.MESSAGES_IN, put_in[0], *labels, topic.type.name.lower())
            sheet.put(series.BYTES_IN, put_in[1], *labels, topic.type.name.lower())
        taken = meters.fetched.by_topic.get(topic.topic_id)
        if taken is not None:
            sheet.put(series.MESSAGES_OUT, taken[0], *labels)
            sheet.put(series.BYTES_OUT, taken[1], *labels)


def _forget(traffic: Traffic, live: dict[bytes, Topic]) -> None:
    """Drop the counts of topics that are deleted."""
    for topic_id in traffic.by_topic.keys() - live.keys():
        del traffic.by_topic[topic_id]
