"""Whether a member proposes a batch: what apply would say, and the rules of topic types (D10).

The rule of apply is `dledger.state.queues.write_rule`. A refusal is given on confirmed state only.
"""

from dledger.state.queues.write_rule import refusal_to_write
from dledger.state.values import TopicType
from dledger_broker.group.group_view import GroupView
from dledger_proto.batch.codec import (
    BATCH_HEADER_SIZE,
    EPOCH_OF_SCHEDULES,
    FLAG_KEYED,
    NO_ID,
    BatchHeader,
)
from dledger_proto.errors import Code, DledgerError


class WriteRule:
    """The rule in one group."""

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self._queries = view.machine.queries
        self.topic_by_id = self._queries.topic_by_id
        self._group = view.names.group

    async def check(self, header: BatchHeader) -> None:
        """DledgerError when the batch may not be written, judged on confirmed state."""
        await self.confirm()
        self.check_applied(header)

    async def confirm(self) -> None:
        """Apply what a quorum has; DledgerError."""
        await self._view.confirm()

    def check_applied(self, header: BatchHeader) -> None:
        """DledgerError when the batch may not be written, as of the topics applied here."""
        refusal = self.refusal(header)
        if refusal is not None:
            raise refusal

    def refusal_of_producer(self, header: BatchHeader, user: str) -> DledgerError | None:
        """Return what a user is told that sends as an unknown producer, or another's, or None."""
        if header.producer_id == NO_ID:
            return None
        refused = self._queries.refusal_of_producer(header.producer_id, user)
        return None if refused is None else DledgerError(refused.code, refused.detail)

    def refusal(self, header: BatchHeader) -> DledgerError | None:
        """Return why the queue does not take the batch, as of the topics applied here, or None."""
        topic = self.topic_by_id(header.topic_id)
        refused = refusal_to_write(topic, header.topic_id, header.queue, self._group)
        if refused is not None:
            return DledgerError(refused.code, refused.detail)
        assert topic is not None
        if header.producer_epoch == EPOCH_OF_SCHEDULES:
            return DledgerError(
                Code.MESSAGE_ILLEGAL,
                f"producer_epoch {header.producer_epoch}: only the leader sends for schedules",
            )
        # Apply need not look at the type of a topic: it never changes.
        if topic.type is TopicType.FIFO and not header.optional_flags & FLAG_KEYED:
            # A batch does not hold the keys: what can be demanded is that its producer used them.
            return DledgerError(
                Code.MESSAGE_ILLEGAL,
                f"topic {topic.name} is FIFO: each message needs an ordering key",
            )
        if topic.type is TopicType.DELAY and header.header_size == BATCH_HEADER_SIZE:
            return DledgerError(
                Code.MESSAGE_ILLEGAL,
                f"topic {topic.name} is DELAY: each message needs a delivery time",
            )
        return None

    def refusal_of_schedules(self, header: BatchHeader) -> DledgerError | None:
        """Return why the queue does not take the message of a schedule, or None."""
        refusal = self.refusal(header)
        if refusal is not None:
            return refusal
        topic = self.topic_by_id(header.topic_id)
        assert topic is not None
        if topic.is_compacted:
            return DledgerError(
                Code.MESSAGE_ILLEGAL,
                f"topic {topic.name} is compacted: it takes nothing from schedules",
            )
        return None
