"""Administration. `client/generate_sync.py` writes `admin.py` from this file.

Owns: what users call, and which group or member each call goes to. A call is a row of
`_shell/calls.py` and a method here. Not: calls about consumer groups
(`_shell/group/administration_async.py`), calls that consumers and planners make too
(`_shell/queries.py`).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import grpc.aio

from dledger_client import _machine
from dledger_client._core.arguments import UINT32_MAX, check_integer
from dledger_client._core.ids import ID_SIZE
from dledger_client._core.message_checks import check_topic
from dledger_client._core.routes import GroupRoute, TopicRoute, topic_route
from dledger_client._core.schedules import Schedule, check_schedule, schedule_batch, schedule_set
from dledger_client._shell import calls
from dledger_client._shell.answers import found_records, hold_of, status_of
from dledger_client._shell.group.administration_async import AsyncGroupAdministration
from dledger_client._shell.group.explaining import explain_message, explain_record
from dledger_client._shell.queries import (
    delete_schedule,
    recall_timer,
    schedules_of,
    timers_of,
)
from dledger_client._shell.wire import failure
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError, error_of, invalid
from dledger_client.model import (
    EntryMark,
    FoundRecord,
    MemberStatus,
    QueueBounds,
    QueueHold,
    StoryLine,
    TopicKind,
    WaitingTimer,
)
from dledger_proto.batch.codec import MESSAGE_ID_SIZE
from dledger_proto.cleanup import DELETE, bounds_of
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import LOOKUP_LIMIT_DEFAULT, RETENTION_DEFAULT, RETENTION_FOREVER
from dledger_proto.rpc.status import answer_of
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2 as dpb

ENTRIES_MAX = 10_000_000
"""Entries that one comparison of logs may hold in memory."""


class AsyncAdmin(AsyncGroupAdministration):
    """Topics, consumer groups, the head of the log, groups and members, lookups.

    ```
    async with AsyncAdmin("127.0.0.1:9876") as admin:
        await admin.create_topic("orders", queues_per_group=4)
    ```

    `bootstrap` names name servers or members, "host:port", several with commas or as a list. A
    call is repeated within `ConnectionConfig.call_timeout_ms`. After an unknown outcome it is
    repeated only if a second call changes nothing more; else it raises UnknownOutcome.
    """

    def __init__(
        self, bootstrap: str | Iterable[str], config: ConnectionConfig | None = None
    ) -> None:
        super().__init__(bootstrap, config)

    # Topics.

    async def create_topic(
        self,
        name: str,
        *,
        queues_per_group: int = 0,
        read_queues: int = 0,
        permission: int = 0,
        groups: Sequence[str] = (),
        kind: TopicKind = TopicKind.NORMAL,
        retention_ms: int = RETENTION_DEFAULT,
        retention_bytes: int = RETENTION_DEFAULT,
        cleanup: str = DELETE,
    ) -> TopicRoute:
        """Create a topic, on all groups or on some; zeros are the cluster's defaults.

        `permission` has the bits 4 read and 2 write. Messages are deleted `retention_ms` after they
        were stored, and the oldest of a queue whose batches have more than `retention_bytes`;
        RETENTION_FOREVER is no bound. With `cleanup` "compact", instead of "delete", the last
        message of each key stays for good. The same topic again is no error; TopicExists when it
        exists with another configuration. Groups that could not be reached take it later.
        """
        check_topic(name)
        check_integer("queues_per_group", queues_per_group, UINT32_MAX)
        check_integer("read_queues", read_queues, UINT32_MAX)
        check_integer("permission", permission, UINT32_MAX)
        check_integer("retention_ms", retention_ms, RETENTION_FOREVER)
        check_integer("retention_bytes", retention_bytes, RETENTION_FOREVER)
        bounds = bounds_of(cleanup, retention_ms, retention_bytes)
        request = pb.CreateTopicRequest(
            name=name,
            type=pb.TopicType.ValueType(kind.value),
            write_queues_per_group=queues_per_group,
            read_queues=read_queues,
            permission=permission,
            groups=groups,
            retention_ms=bounds[0] or RETENTION_DEFAULT,
            retention_bytes=bounds[1] or RETENTION_DEFAULT,
            topic_id=_machine.random_bytes(ID_SIZE),
        )
        return await self._queries.create(request)

    async def update_topic(
        self,
        name: str,
        *,
        permission: int = 0,
        read_queues: int = 0,
        layout: Sequence[tuple[str, int]] = (),
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        cleanup: str | None = None,
    ) -> TopicRoute:
        """Change a topic; zeros, None and an empty layout leave things as they are.

        `cleanup` is "compact" or "delete"; with "delete" the topic gets the bounds that are given,
        or those of the cluster.

        `layout` lists (group, queues) of all queues that take messages from now on, in the order in
        which they are numbered. A number stays with its group for good; a queue that is left out is
        closed: it is read until `read_queues` is lowered, and whoever opens it again goes on in it.
        """
        check_integer("read_queues", read_queues, UINT32_MAX)
        check_integer("permission", permission, UINT32_MAX)
        for group, queues in layout:
            check_integer(f"layout: queues of {group}", queues, UINT32_MAX)
        for field, bound in (("retention_ms", retention_ms), ("retention_bytes", retention_bytes)):
            if bound is not None:
                check_integer(field, bound, RETENTION_FOREVER)
        bounds = bounds_of(cleanup, retention_ms, retention_bytes)
        request = pb.UpdateTopicRequest(
            name=name,
            permission=permission,
            read_queues=read_queues,
            layout=[pb.LayoutPart(group=group, queues=queues) for group, queues in layout],
            retention_ms=bounds[0],
            retention_bytes=bounds[1],
        )
        group = await self._queries.control_group()
        reply = await self._cluster.call(calls.UPDATE_TOPIC, request, group=group)
        return self._queries.learn(reply.topic)

    async def delete_topic(self, name: str) -> TopicRoute:
        """Delete a topic and everything in it; a new one of the same name is another topic."""
        request, group = pb.DeleteTopicRequest(name=name), await self._queries.control_group()
        reply = await self._cluster.call(calls.DELETE_TOPIC, request, group=group)
        self._cluster.apply_topic(reply.topic)
        return topic_route(reply.topic)

    async def describe_topic(self, name: str) -> TopicRoute:
        """Return a topic as the control group has it; TopicNotFound."""
        return await self._queries.describe(name)

    async def list_topics(self) -> list[TopicRoute]:
        """Return all topics as the control group has them, by name."""
        return await self._queries.list_topics()

    # Offsets.

    async def queue_offsets(
        self, topic: str, *, linearizable: bool = True
    ) -> dict[int, QueueBounds]:
        """Return minimum and maximum of each queue; confirmed by a quorum if `linearizable`."""
        places = await self._queries.places(topic)
        bounds = await self._queries.bounds(places, linearizable=linearizable)
        return {queue: bounds[topic, queue] for _, queue in places}

    async def offset_by_time(self, topic: str, queue: int, time_ms: int) -> int:
        """Return the first offset stored at or after a time; the maximum if there is none."""
        return await self._queries.offset_by_time((topic, queue), time_ms)

    # The head of the log.

    async def trim(self, topic: str, queue: int, offset: int) -> int:
        """Delete the records of a queue below `offset`; return the new minimum.

        The minimum stays below `offset` where a hold keeps records; Held when it keeps them all.
        """
        check_integer("offset", offset)
        ref, group = await self._reference(topic, queue)
        request = pb.TrimRequest(queue=ref, offset=offset)
        return (await self._cluster.call(calls.TRIM, request, group=group)).minimum

    async def _reference(self, topic: str, queue: int) -> tuple[pb.QueueRef, str]:
        route, group = await self._queries.located((topic, queue))
        return pb.QueueRef(topic_id=route.id, queue=queue), group

    async def hold(self, owner: str, topic: str, queue: int, offset: int, ttl_ms: int) -> int:
        """Keep all records from `offset` on for `ttl_ms`; return the hold's end, ms since 1970."""
        check_integer("offset", offset)
        check_integer("ttl_ms", ttl_ms)
        ref, group = await self._reference(topic, queue)
        request = pb.HoldRequest(owner=owner, queue=ref, offset=offset, ttl_ms=ttl_ms)
        method = calls.HOLD if ttl_ms else calls.RELEASE_HOLD
        return (await self._cluster.call(method, request, group=group)).until_ms

    async def release_hold(self, owner: str, topic: str, queue: int) -> None:
        """End a hold before its time."""
        await self.hold(owner, topic, queue, 0, 0)

    async def holds(
        self, topic: str = "", queue: int | None = None, *, limit: int = 1_000
    ) -> list[QueueHold]:
        """Return up to `limit` holds that last: of a queue, of a topic, or of all topics."""
        if queue is not None and not topic:
            raise invalid(f"queue: {queue} is given without a topic")
        check_integer("limit", limit, UINT32_MAX)
        request = pb.ListHoldsRequest(topic=topic)
        if queue is not None:
            _, group = await self._queries.located((topic, queue))
            groups, request.queue = [group], queue
        else:
            groups = await self._groups_of(topic)
        found: list[QueueHold] = []
        for group in groups:
            request.after = b""
            while len(found) < limit:
                request.limit = limit - len(found)
                reply = await self._cluster.call(calls.LIST_HOLDS, request, group=group)
                found += [hold_of(row, group) for row in reply.holds]
                if not reply.next:
                    break
                request.after = reply.next
        return found

    # Timers.

    async def recall(self, message_id: bytes | str) -> int:
        """Take a delayed message back; return when it was due, ms since 1970.

        Raises NotFound when no timer has the message: it was delivered or recalled.
        """
        wanted = _message_id(message_id)
        groups = await self._group_names()
        return await recall_timer(self._cluster, groups, wanted)

    async def timers(
        self, topic: str = "", *, from_ms: int = 0, to_ms: int = 0, limit: int = 1_000
    ) -> list[WaitingTimer]:
        """Return up to `limit` timers that are due from one time to another (0: no end), by time.

        Delayed messages and retries, of a topic or of all topics.
        """
        for name, number in (("from_ms", from_ms), ("to_ms", to_ms)):
            check_integer(name, number)
        check_integer("limit", limit, UINT32_MAX)
        groups = await self._groups_of(topic)
        return await timers_of(self._cluster, groups, topic, from_ms, to_ms, limit)

    # Schedules.

    async def set_schedule(
        self,
        topic: str,
        name: str,
        cron: str,
        body: bytes,
        *,
        time_zone: str = "UTC",
        ordering_key: str | bytes | None = None,
        queue: int | None = None,
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> Schedule:
        """Send a message at each time of a cron expression; replace the schedule of this name.

        The ordering key decides the queue, as when a message is sent; without key or queue it is
        queue 0. The queue stays, also when the topic gets more. `cron` has five fields, or six with
        seconds first. The topic must exist. Raises MessageIllegal, or InvalidRequest for an
        expression or a time zone that cannot be read.
        """
        check_schedule(name, cron, time_zone)
        route = await self._queries.topic(topic)
        batch, number = schedule_batch(
            route, body, ordering_key=ordering_key, queue=queue, tag=tag, keys=keys,
            properties=properties,
        )  # fmt: skip
        _, group = await self._queries.located((topic, number))
        known = {each.group: each for each in await self.schedules(topic) if each.name == name}
        for other in known.keys() - {group}:
            raise invalid(
                f"schedule {name} of topic {topic} is in group {other}, and queue {number} in "
                f"{group}: delete it first"
            )
        request = dpb.SetScheduleRequest(name=name, cron=cron, time_zone=time_zone, batch=batch)
        reply = await self._cluster.call(calls.SET_SCHEDULE, request, group=group)
        return schedule_set(topic, group, request, reply)

    async def schedules(self, topic: str = "") -> list[Schedule]:
        """Return the schedules of a topic, or of all topics, by topic and name."""
        return await schedules_of(self._cluster, await self._groups_of(topic), topic)

    async def delete_schedule(self, topic: str, name: str) -> None:
        """Delete a schedule; NotFound when the topic has none of this name. What it sent stays."""
        check_schedule(name)
        await delete_schedule(self._cluster, await self._groups_of(topic), topic, name)

    async def _groups_of(self, topic: str) -> list[str]:
        """Return whom to ask about a topic, or about all (empty)."""
        if not topic:
            return await self._group_names()
        route = await self._queries.topic(topic)
        return list(dict.fromkeys(group for group, _ in route.parts))

    # Groups and members.

    async def groups(self) -> list[GroupRoute]:
        """Return all groups: leader, term, members."""
        await self._cluster.wait_loaded(self._budget)
        return self._cluster.routes.groups()

    async def _group_names(self) -> list[str]:
        """Return whom to ask for something that may be in any group."""
        await self._cluster.wait_loaded(self._budget)
        return self._cluster.routes.group_names()

    async def status(self, address: str, group: str = "") -> MemberStatus:
        """Return the status of the member at `address`; name the `group` if it serves several."""
        timeout = self._cluster.config.try_timeout_ms / 1_000
        reply = await self._cluster.channels.call(
            address, calls.STATUS, pb.StatusRequest(), group=group, timeout=timeout
        )
        return status_of(reply, address)

    async def statuses(self) -> dict[tuple[str, str], MemberStatus | ClientError]:
        """Return the status of every member by (group, member), or the error of asking it."""
        asked = [(group, member) for group in await self.groups() for member in group.members]
        answers = await asyncio.gather(
            *(self.status(member.address, group.name) for group, member in asked),
            return_exceptions=True,
        )
        found: dict[tuple[str, str], MemberStatus | ClientError] = {}
        for (group, member), answer in zip(asked, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, ClientError):
                raise answer
            found[group.name, member.name] = answer
        return found

    async def transfer_leadership(self, group: str, target: str = "") -> tuple[str, int]:
        """Hand a group's leadership to `target` (empty: the member that holds most).

        Returns the new leader and its term. Raises UnknownOutcome when this client hears of no new
        leader in time. Calls under way do not fail because of the transfer.
        """
        known = [each.name for each in await self.groups()]
        if group not in known:
            raise invalid(f"group {group!r} is not known; the groups are {', '.join(known)}")
        request = pb.TransferLeadershipRequest(target=target)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._budget
        reply = await self._cluster.call(calls.TRANSFER, request, group=group)
        if reply.leader:
            return reply.leader, reply.term
        # The old leader has stepped down. The routes tell who won.
        found = await self._cluster.leader_of(group, reply.term, deadline - loop.time())
        if found is None:
            raise error_of(
                Code.UNKNOWN_OUTCOME,
                f"the old leader of {group} stepped down before term {reply.term}, and no new"
                " leader"
                f" was heard of within {self._budget:.1f} s",
            )
        return found

    async def lift_quarantine(self, address: str, group: str, member: str, sentence: str) -> None:
        """Make the member at `address` trust `member`, which lost its data, before all agree.

        Acknowledged messages may be lost that way. `sentence` must say that this is accepted.
        """
        request = pb.LiftQuarantineRequest(member=member, i_accept_possible_loss=sentence)
        await self._cluster.channels.call(
            address, calls.LIFT_QUARANTINE, request, group=group, timeout=self._budget
        )

    async def log_entries(
        self, address: str, group: str = "", from_index: int = 0
    ) -> list[EntryMark]:
        """Return index, term and CRC of every committed entry of one member's log."""
        check_integer("from_index", from_index)
        request = pb.LogEntriesRequest(from_index=from_index).SerializeToString()
        stream = await self._cluster.channels.read(address, calls.LOG_ENTRIES, request, group=group)
        marks: list[EntryMark] = []
        try:
            while (message := await self._cluster.channels.next_of(stream)) is not None:
                reply = answer_of(pb.LogEntriesReply, message, write=False)
                for place, (term, crc) in enumerate(zip(reply.terms, reply.crcs, strict=True)):
                    marks.append(EntryMark(reply.first_index + place, term, crc))
                if len(marks) > ENTRIES_MAX:
                    raise invalid(
                        f"from_index {from_index}: more than {ENTRIES_MAX} entries follow"
                    )
        except (grpc.aio.AioRpcError, DledgerError) as error:
            raise failure(error, write=False) from None
        finally:
            stream.cancel()
        return marks

    # Lookups.

    async def lookup_key(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = 0, limit: int = 32
    ) -> list[FoundRecord]:
        """Return up to `limit` records of a topic that have this key, stored between two times.

        The records of a group's newest batch come first. Answers have about a MiB each. A record
        that cannot be decoded says so in `error`, and its `record` raises that.
        """
        check_integer("begin_ms", begin_ms)
        check_integer("end_ms", end_ms)
        check_integer("limit", limit, UINT32_MAX)
        route = await self._queries.topic(topic)
        wanted = limit or LOOKUP_LIMIT_DEFAULT
        answers = await asyncio.gather(
            *(
                self._queries.by_key(group, route.id, key, begin_ms, end_ms, wanted)
                for group in dict.fromkeys(group for group, _ in route.parts)
            )
        )
        rows = [row for portion, _ in answers for row in portion]
        found = found_records(rows, self._cluster.routes)
        # The member has compared the key; a record without it would be a bug of the member.
        same = [each for each in found if each.error is not None or key in each.record.keys]
        return same[: limit or None]

    async def lookup_message(self, message_id: bytes | str) -> list[FoundRecord]:
        """Return the record with an id (24 bytes, or 48 hex digits); [] if there is none."""
        request = pb.LookupMessageRequest(message_id=_message_id(message_id))
        replies = await asyncio.gather(
            *(
                self._cluster.call(calls.LOOKUP_MESSAGE, request, group=group)
                for group in await self._group_names()
            ),
            return_exceptions=True,
        )
        rows: list[pb.FoundRecord] = []
        for reply in replies:
            if isinstance(reply, BaseException):
                if not (isinstance(reply, ClientError) and reply.code is Code.NOT_FOUND):
                    raise reply
            else:
                rows += reply.records
        return found_records(rows, self._cluster.routes)

    async def lookup_offset(self, topic: str, queue: int, offset: int) -> list[FoundRecord]:
        """Return the record at an offset of a queue."""
        check_integer("offset", offset)
        ref, group = await self._reference(topic, queue)
        request = pb.LookupOffsetRequest(queue=ref, offset=offset)
        reply = await self._cluster.call(calls.LOOKUP_OFFSET, request, group=group)
        return found_records(reply.records, self._cluster.routes)

    # What became of a message.

    async def explain(self, topic: str, queue: int, offset: int) -> list[StoryLine]:
        """Return what became of the record at an offset of a queue, in the order of the log.

        Every consumer group that had it is told: claims, commits, failures, retries, dead letters,
        resets. It reads the log of the record's broker group from the record on.
        """
        check_integer("offset", offset)
        ref, group = await self._reference(topic, queue)
        return await explain_record(self._cluster, group, ref, offset)

    async def explain_message(self, message_id: bytes | str) -> list[StoryLine]:
        """Return what became of the message with an id; NotFound. As `explain`."""
        wanted = _message_id(message_id)
        groups = await self._group_names()
        return await explain_message(self._cluster, groups, wanted)


def _message_id(message_id: bytes | str) -> bytes:
    if isinstance(message_id, bytes):
        return message_id
    try:
        found = bytes.fromhex(message_id)
    except ValueError:
        found = b""
    if len(found) != MESSAGE_ID_SIZE:
        raise invalid(f"message_id: {message_id!r}, must be {2 * MESSAGE_ID_SIZE} hex digits")
    return found
