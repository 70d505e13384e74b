"""From what a consumer says when it joins to the command for the log.

Owns the checks that need patterns to be understood, and that a subscription means something. Apply
does neither: a later version may understand a pattern differently. Not: what apply checks
(`dledger.state.consumers.membership`).
"""

from dledger.state.consumers.membership import Join
from dledger.state.consumers.settings import ConsumeOrder, GroupSettings
from dledger.state.consumers.table import QueueKey, Subscribed
from dledger.state.queries import Queries
from dledger_broker.delivery.strategies.choose import ROOM_STRATEGIES
from dledger_broker.delivery.subscribed import Subscription, check_patterns
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import QUEUES_PER_CALL_MAX, SUBSCRIPTIONS_MAX
from dledger_proto.v1 import broker_pb2
from dledger_proto.v1 import delivery_pb2 as pb


async def join_command(
    queries: Queries, request: pb.Join, group_id: bytes, settings: GroupSettings
) -> Join:
    """Return the command of a request; DledgerError names the first field that is wrong."""
    # Counted before anything is made of them.
    for field, count, most in (
        ("subscriptions", len(request.subscriptions), SUBSCRIPTIONS_MAX),
        ("wanted", len(request.wanted), QUEUES_PER_CALL_MAX),
    ):
        if count > most:
            raise invalid(f"{count} {field}, at most {most}")
    try:
        order = ConsumeOrder(request.order)
    except ValueError:
        raise invalid(f"order {request.order} is not known") from None
    subscribed = {Subscribed(each.topic, each.pattern) for each in request.subscriptions}
    command = Join(
        group_id,
        request.member_id,
        request.instance,
        request.client,
        request.room,
        order,
        "" if request.strategy == settings.strategy else request.strategy,
        tuple(sorted(subscribed)),
        tuple(sorted({_wanted(queries, ref) for ref in request.wanted})),
    )
    command.check()
    strategy = command.strategy or settings.strategy
    if strategy in ROOM_STRATEGIES and not command.room:
        raise invalid(f"room is empty: strategy {strategy} needs it")
    rows = queries.consumers(group_id)
    # A consumer that comes back is not refused because a topic was deleted meanwhile.
    if not rows.consumers or rows.epochs.subscriptions != command.subscriptions:
        await check_patterns(command.subscriptions)
        await Subscription(command.subscriptions).check(queries)
    return command


def _wanted(queries: Queries, ref: broker_pb2.QueueRef) -> QueueKey:
    topic_id = ref.topic_id
    topic = queries.topic_by_id(topic_id) if topic_id else queries.topic_by_name(ref.topic)
    if topic is None or topic.deleted:
        name = topic_id.hex() if topic_id else repr(ref.topic)
        raise DledgerError(Code.TOPIC_NOT_FOUND, f"wanted: topic {name} does not exist")
    if not topic.owner_of(ref.queue):
        raise DledgerError(
            Code.QUEUE_NOT_FOUND, f"wanted: topic {topic.name} has no queue {ref.queue}"
        )
    return QueueKey(topic.topic_id, ref.queue)
