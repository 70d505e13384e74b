"""What the coordinator of a consumer group tells of it: consumers, and who has which queue."""

import asyncio
from collections.abc import Sequence

from dledger_client._core.message_checks import check_group
from dledger_client._shell import calls
from dledger_client._shell.cluster import Cluster
from dledger_client.errors import ClientError, error_of
from dledger_client.model import GroupConsumer, GroupDescription, QueueGrant
from dledger_proto.errors import Code
from dledger_proto.v1 import delivery_pb2 as dpb


async def describe(cluster: Cluster, consumer_group: str) -> GroupDescription:
    """Ask all broker groups: one of them coordinates it, the others say so."""
    check_group(consumer_group)
    seconds = cluster.config.call_timeout_ms / 1_000
    await cluster.wait_loaded(seconds)
    request = dpb.DescribeConsumerGroupRequest(name=consumer_group)

    async def ask(group: str, address: str) -> dpb.DescribeConsumerGroupReply | ClientError:
        try:
            return await cluster.channels.call(
                address, calls.DESCRIBE_GROUP, request, group=group, timeout=seconds
            )
        except ClientError as error:
            return error

    answers = await asyncio.gather(
        *(
            ask(group.name, group.leader_address or group.members[0].address)
            for group in cluster.routes.groups()
            if group.members
        )
    )
    for answer in answers:
        if isinstance(answer, dpb.DescribeConsumerGroupReply):
            return _described(answer)
    raise _most_telling([answer for answer in answers if isinstance(answer, ClientError)])


def _most_telling(errors: Sequence[ClientError]) -> ClientError:
    """Return the error of the coordinator, if it gave one."""
    others = (Code.WRONG_GROUP, Code.CONSUMER_GROUP_NOT_FOUND)
    telling = [error for error in errors if error.code not in others]
    missing = [error for error in errors if error.code is Code.CONSUMER_GROUP_NOT_FOUND]
    nobody = error_of(Code.UNAVAILABLE, "no broker group is known")
    return next(iter((*telling, *missing, *errors)), nobody)


def _described(reply: dpb.DescribeConsumerGroupReply) -> GroupDescription:
    subscriptions = reply.members[0].subscriptions if reply.members else ()
    return GroupDescription(
        name=reply.group.name,
        coordinator=reply.group.coordinator,
        strategy=reply.strategy,
        paused=reply.group.settings.paused,
        group_epoch=reply.group_epoch,
        assignment_epoch=reply.assignment_epoch,
        topics=tuple(each.topic for each in subscriptions if not each.pattern),
        patterns=tuple(each.topic for each in subscriptions if each.pattern),
        consumers=tuple(
            GroupConsumer(
                member_id=member.id,
                instance=member.instance,
                client=member.client,
                room=member.room,
                member_epoch=member.member_epoch,
                connected=member.connected,
                silent_ms=member.silent_ms,
            )
            for member in reply.members
        ),
        queues={
            (queue.topic, queue.queue): QueueGrant(
                broker_group=queue.broker_group,
                holder=queue.holder,
                target=queue.target,
                epoch=queue.epoch,
                since_ms=queue.since_ms,
            )
            for queue in reply.queues
        },
        unassigned=tuple((ref.topic, ref.queue) for ref in reply.unassigned),
        problems=tuple(reply.problems),
    )
