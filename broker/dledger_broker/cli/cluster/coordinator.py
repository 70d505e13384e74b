"""What the coordinator of a consumer group says: who consumes, and who has which queue."""

from collections.abc import Iterable

from dledger_broker.cli.connect import Cluster
from dledger_broker.cli.output import CommandFailed
from dledger_broker.cli.values import shown_time
from dledger_proto.errors import Code, DledgerError
from dledger_proto.v1.delivery_pb2 import DescribeConsumerGroupReply, DescribeConsumerGroupRequest
from dledger_proto.v1.delivery_pb2_grpc import DeliveryStub

CONSUMER_COLUMNS = "consumer", "instance", "client", "room", "connected", "silent_ms"
QUEUE_COLUMNS = "topic", "queue", "group", "holder", "target", "epoch", "since"


def described(cluster: Cluster, name: str) -> DescribeConsumerGroupReply:
    """Return what the coordinator knows of a group; end the command when nobody knows it."""
    last: DledgerError | None = None
    for address, group in leaders(cluster):
        try:
            return cluster.ask(
                address,
                group,
                lambda channel: DeliveryStub(channel).DescribeConsumerGroup,
                DescribeConsumerGroupRequest(name=name),
                write=False,
            )
        except DledgerError as error:
            if error.code is not Code.WRONG_GROUP:
                last = error
    if last is None or last.code is Code.CONSUMER_GROUP_NOT_FOUND:
        raise CommandFailed(f"no consumer group is called {name}", "dledger group list shows all")
    raise last


def leaders(cluster: Cluster) -> Iterable[tuple[str, str]]:
    """Yield the address of each group's leader, or of a member that forwards to it."""
    for route in list(cluster.routes().groups):
        members = sorted(route.members, key=lambda each: each.member != route.leader)
        if members:
            yield members[0].address, route.group


def consumer_rows(found: DescribeConsumerGroupReply) -> list[dict[str, object]]:
    """Return a row for each consumer."""
    return [
        {
            "consumer": member.id,
            "instance": member.instance or None,
            "client": member.client or None,
            "room": member.room or None,
            "connected": member.connected,
            "silent_ms": member.silent_ms,
            "subscriptions": [
                f"/{each.topic}/" if each.pattern else each.topic for each in member.subscriptions
            ],
        }
        for member in found.members
    ]


def queue_rows(found: DescribeConsumerGroupReply) -> list[dict[str, object]]:
    """Return a row for each queue that somebody has, and then for those that nobody should have."""
    rows: list[dict[str, object]] = [
        {
            "topic": queue.topic,
            "queue": queue.queue,
            "group": queue.broker_group,
            "holder": queue.holder,
            "target": queue.target or None,
            "epoch": queue.epoch,
            "since": shown_time(queue.since_ms),
        }
        for queue in found.queues
    ]
    known = {(queue.topic, queue.queue) for queue in found.queues}
    return rows + [
        {"topic": ref.topic, "queue": ref.queue, "holder": None, "target": None}
        for ref in found.unassigned
        if (ref.topic, ref.queue) not in known
    ]
