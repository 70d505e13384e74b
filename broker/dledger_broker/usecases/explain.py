"""What became of a record, by its place or its message id.

Not owned: the log's part (`read.explain`), the wire (`rpc/delivery/explaining.py`).
"""

from dledger_broker.read.explain import Page, explain, story_at
from dledger_broker.read.story import Line, Story
from dledger_broker.usecases.messaging import Messaging, Queue
from dledger_proto.batch.codec import parse_message_id
from dledger_proto.errors import Code, DledgerError


async def explain_place(messaging: Messaging, queue: Queue, offset: int, cursor: bytes) -> Page:
    """Return a page of the story of the record at an offset, behind a read barrier."""
    view = messaging.view
    await view.confirm()
    # A later page knows its places. Whoever trims the record meanwhile does not end the story.
    story = (
        Story([])
        if cursor
        else story_at(view.machine.queries, queue.topic_id, queue.number, offset)
    )
    return await explain(view, messaging.explaining, story, cursor)


async def explain_message(messaging: Messaging, message_id: bytes, cursor: bytes) -> Page:
    """Return a page of the story of a message; of one that waits for its time, until when.

    NOT_FOUND when this broker group has no such message.
    """
    if cursor:
        return await explain(messaging.view, messaging.explaining, Story([]), cursor)
    producer_id, number = parse_message_id(message_id)
    await messaging.view.confirm()
    queries = messaging.view.machine.queries
    hit = queries.lookup_message_id(producer_id, number)
    if hit is not None:
        return await explain_place(messaging, Queue(hit.topic_id, hit.queue), hit.offset, cursor)
    timer = queries.timer_of(producer_id, number)
    if timer is None:
        raise DledgerError(Code.NOT_FOUND, f"no message has the id {message_id.hex()}")
    text = f"stored at {timer.stored_ms} ms, waits until {timer.due_ms} ms, by leader time"
    line = Line(0, timer.due_ms, "waits", timer.topic_id, timer.queue, -1, text)
    return Page([line], b"")
