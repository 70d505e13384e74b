"""Calls of administration (asyncio), and protobuf turned into values.

Owns: which group or member each call goes to. Not: what a user calls (`admin_async.py`).
"""

import asyncio
import os
import random
from collections.abc import Iterable, Sequence

import grpc.aio

from dledger_client._core.arguments import UINT32_MAX, check_integer
from dledger_client._core.consumer.state import Place
from dledger_client._core.routes import GroupRoute, TopicRoute, topic_route
from dledger_client._shell import calls
from dledger_client._shell.cluster import Cluster
from dledger_client._shell.creation import create_topic
from dledger_client._shell.queries import Queries
from dledger_client._shell.wire import failure, group_metadata
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError, code_of, error_of
from dledger_client.model import EntryMark, FoundRecord, MemberProgress, MemberStatus, QueueHold
from dledger_proto.batch.codec import BatchView, Record, check_envelope
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import LOOKUP_LIMIT_DEFAULT, LOOKUP_LIMIT_MAX
from dledger_proto.rpc.raw import raw_read
from dledger_proto.v1 import broker_pb2 as pb

ENTRIES_MAX = 10_000_000
"""Entries that one comparison of logs may hold in memory."""


class Administration:
    """One connection for administration. All methods on the loop's thread."""

    def __init__(self, bootstrap: Sequence[str], config: ConnectionConfig) -> None:
        generator = random.Random(os.urandom(16))  # noqa: S311  spreads load, guards nothing
        self.cluster = Cluster(bootstrap, config, generator)
        self.queries = Queries(self.cluster)
        self._budget = config.call_timeout_ms / 1_000

    async def start(self) -> None:
        """Begin to watch routes."""
        self.cluster.start()

    async def close(self) -> None:
        """End."""
        await self.cluster.close()

    async def groups(self) -> list[GroupRoute]:
        """Return all groups."""
        await self.cluster.wait_loaded(self._budget)
        return self.cluster.routes.groups()

    async def _control(self) -> str:
        await self.cluster.wait_loaded(self._budget)
        return await self.cluster.control_group(self._budget * 1_000)

    def _learn(self, topic: pb.Topic) -> TopicRoute:
        self.cluster.apply_topic(topic)
        route = self.cluster.routes.topic(topic.name)
        return route if route is not None else topic_route(topic)

    # Topics.

    async def create_topic(self, request: pb.CreateTopicRequest) -> tuple[TopicRoute, list[str]]:
        """Create a topic; return it and the groups that have not taken it yet."""
        reply = await create_topic(self.cluster, request, group=await self._control())
        return self._learn(reply.topic), list(reply.missing_groups)

    async def update_topic(self, request: pb.UpdateTopicRequest) -> TopicRoute:
        """Change a topic."""
        reply = await self.cluster.call(calls.UPDATE_TOPIC, request, group=await self._control())
        return self._learn(reply.topic)

    async def delete_topic(self, name: str) -> TopicRoute:
        """Delete a topic; return what it was."""
        reply = await self.cluster.call(
            calls.DELETE_TOPIC, pb.DeleteTopicRequest(name=name), group=await self._control()
        )
        self.cluster.apply_topic(reply.topic)
        return topic_route(reply.topic)

    async def describe_topic(self, name: str) -> TopicRoute:
        """Return a topic as the control group has it."""
        reply = await self.cluster.call(
            calls.DESCRIBE_TOPIC, pb.DescribeTopicRequest(name=name), group=await self._control()
        )
        return self._learn(reply.topic)

    async def list_topics(self) -> list[TopicRoute]:
        """Return all topics as the control group has them, by name; page by page."""
        control = await self._control()
        request = pb.ListTopicsRequest()
        found: dict[str, TopicRoute] = {}
        while True:
            reply = await self.cluster.call(calls.LIST_TOPICS, request, group=control)
            found.update((topic.name, topic_route(topic)) for topic in reply.topics)
            if not reply.cursor:
                return [found[name] for name in sorted(found)]
            request.cursor = reply.cursor

    # The head of the log.

    async def _reference(self, place: Place) -> tuple[pb.QueueRef, str]:
        route, group = await self.queries.located(place)
        return pb.QueueRef(topic_id=route.id, queue=place[1]), group

    async def trim(self, place: Place, offset: int) -> int:
        """Move a queue's minimum up to `offset`, or to where a hold ends it; return it."""
        check_integer("offset", offset)
        ref, group = await self._reference(place)
        request = pb.TrimRequest(queue=ref, offset=offset)
        return (await self.cluster.call(calls.TRIM, request, group=group)).minimum

    async def hold(self, owner: str, place: Place, offset: int, ttl_ms: int) -> int:
        """Keep everything from `offset` on for `ttl_ms` (0: release); return until when."""
        check_integer("offset", offset)
        check_integer("ttl_ms", ttl_ms)
        ref, group = await self._reference(place)
        request = pb.HoldRequest(owner=owner, queue=ref, offset=offset, ttl_ms=ttl_ms)
        method = calls.HOLD if ttl_ms else calls.RELEASE_HOLD
        return (await self.cluster.call(method, request, group=group)).until_ms

    async def holds(self, topic: str, queue: int | None, limit: int) -> list[QueueHold]:
        """Return up to `limit` holds of all groups, or of those that have a part of the topic."""
        check_integer("limit", limit, UINT32_MAX)
        request = pb.ListHoldsRequest(topic=topic)
        if queue is not None:
            _, group = await self.queries.located((topic, queue))
            groups, request.queue = [group], queue
        elif topic:
            route = await self.queries.topic(topic)
            groups = list(dict.fromkeys(group for group, _ in route.parts))
        else:
            groups = [group.name for group in await self.groups()]
        found: list[QueueHold] = []
        for group in groups:
            request.after = b""
            while len(found) < limit:
                request.limit = limit - len(found)
                reply = await self.cluster.call(calls.LIST_HOLDS, request, group=group)
                found += [_hold_of(row, group) for row in reply.holds]
                if not reply.next:
                    break
                request.after = reply.next
        return found

    # Groups and members.

    async def status(self, address: str, group: str) -> MemberStatus:
        """Return what the member at one address says, asked directly."""
        timeout = self.cluster.config.try_timeout_ms / 1_000
        reply = await self.cluster.channels.call(
            address, calls.STATUS, pb.StatusRequest(), group=group, timeout=timeout
        )
        return _status_of(reply, address)

    async def statuses(self) -> dict[tuple[str, str], MemberStatus | ClientError]:
        """Return, by (group, member), what each member says, or why it says nothing."""
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

    async def transfer_leadership(self, group: str, target: str) -> tuple[str, int]:
        """Hand leadership over; return the new leader and its term."""
        known = [each.name for each in await self.groups()]
        if group not in known:
            raise error_of(
                Code.INVALID_ARGUMENT, f"group {group!r}: not known, known are {', '.join(known)}"
            )
        request = pb.TransferLeadershipRequest(target=target)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._budget
        reply = await self.cluster.call(calls.TRANSFER, request, group=group)
        if reply.leader:
            return reply.leader, reply.term
        # The old leader has let go; who won is told by the routes.
        found = await self.cluster.leader_of(group, reply.term, deadline - loop.time())
        if found is None:
            raise error_of(
                Code.UNKNOWN_OUTCOME,
                f"leadership of {group} was given up before term {reply.term}, but no new leader"
                f" was heard of within {self._budget:.1f} s",
            )
        return found

    async def lift_quarantine(self, address: str, group: str, member: str, sentence: str) -> None:
        """Ask one member to trust another that lost its data; `sentence` must name the risk."""
        request = pb.LiftQuarantineRequest(member=member, i_accept_possible_loss=sentence)
        await self.cluster.channels.call(
            address, calls.LIFT_QUARANTINE, request, group=group, timeout=self._budget
        )

    async def log_entries(self, address: str, group: str, from_index: int) -> list[EntryMark]:
        """Return a mark for every entry of one member's committed log from an index on."""
        check_integer("from_index", from_index)
        request = pb.LogEntriesRequest(from_index=from_index).SerializeToString()
        stream = raw_read(self.cluster.channels.to(address), calls.LOG_ENTRIES)(
            request, metadata=group_metadata(group)
        )
        marks: list[EntryMark] = []
        try:
            while isinstance(message := await stream.read(), bytes):
                reply = pb.LogEntriesReply.FromString(message)
                for place, (term, crc) in enumerate(zip(reply.terms, reply.crcs, strict=True)):
                    marks.append(EntryMark(reply.first_index + place, term, crc))
                if len(marks) > ENTRIES_MAX:
                    raise error_of(
                        Code.INVALID_ARGUMENT,
                        f"from_index {from_index}: more than {ENTRIES_MAX} entries follow",
                    )
        except (grpc.aio.AioRpcError, DledgerError) as error:
            raise failure(error, write=False) from None
        finally:
            stream.cancel()
        return marks

    # Lookups.

    async def lookup_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int
    ) -> list[FoundRecord]:
        """Return records with a key, from every group that holds a part of the topic."""
        check_integer("begin_ms", begin_ms)
        check_integer("end_ms", end_ms)
        check_integer("limit", limit, UINT32_MAX)
        route = await self.queries.topic(topic)
        wanted = limit or LOOKUP_LIMIT_DEFAULT
        groups = dict.fromkeys(group for group, _ in route.parts)
        answers = await asyncio.gather(
            *(self._by_key(group, route.id, key, begin_ms, end_ms, wanted) for group in groups)
        )
        found = self._found(row for rows, _ in answers for row in rows)
        # The member has compared the key; a record without it would be somebody's mistake.
        same = [each for each in found if each.error is not None or key in each.record.keys]
        return same[: limit or None]

    async def every_place_of_key(
        self, topic_id: bytes, groups: Iterable[str], key: str, limit: int
    ) -> list[tuple[int, int]] | None:
        """Return queue and offset of each record with a key that groups hold of a topic.

        Also of records that cannot be decoded and may have it. None when a group has more than
        `limit`.
        """
        answers = await asyncio.gather(
            *(
                self._by_key(group, topic_id, key, 0, 0, limit, places_only=True)
                for group in dict.fromkeys(groups)
            )
        )
        if not all(is_whole for _, is_whole in answers):
            return None
        return [(row.queue, row.offset) for rows, _ in answers for row in rows]

    async def _by_key(
        self,
        group: str,
        topic_id: bytes,
        key: str,
        begin_ms: int,
        end_ms: int,
        wanted: int,
        *,
        places_only: bool = False,
    ) -> tuple[list[pb.FoundRecord], bool]:
        """Return up to `wanted` records of a group, and whether it has no others.

        An answer is bounded in bytes: the next one begins at its cursor.
        """
        request = pb.LookupKeyRequest(
            queue=pb.QueueRef(topic_id=topic_id),
            key=key.encode(),
            begin_time_ms=begin_ms,
            end_time_ms=end_ms,
            places_only=places_only,
        )
        rows: list[pb.FoundRecord] = []
        while True:
            request.limit = min(wanted - len(rows), LOOKUP_LIMIT_MAX)
            reply = await self.cluster.call(calls.LOOKUP_KEY, request, group=group)
            rows += reply.records
            if not reply.cursor or len(rows) >= wanted:
                return rows, not reply.cursor
            request.cursor = reply.cursor

    async def lookup_message(self, message_id: bytes) -> list[FoundRecord]:
        """Return the record with an id, asking every group."""
        request = pb.LookupMessageRequest(message_id=message_id)
        replies = await asyncio.gather(
            *(
                self.cluster.call(calls.LOOKUP_MESSAGE, request, group=group.name)
                for group in await self.groups()
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
        return self._found(rows)

    async def lookup_offset(self, place: Place, offset: int) -> list[FoundRecord]:
        """Return the record at an offset."""
        check_integer("offset", offset)
        ref, group = await self._reference(place)
        request = pb.LookupOffsetRequest(queue=ref, offset=offset)
        return self._found(
            (await self.cluster.call(calls.LOOKUP_OFFSET, request, group=group)).records
        )

    def _found(self, rows: Iterable[pb.FoundRecord]) -> list[FoundRecord]:
        found: list[FoundRecord] = []
        for row in rows:
            record: Record | None = None
            message_id, error = b"", None
            if row.code:
                place = f"{row.topic_id.hex()}/{row.queue} offset {row.offset}"
                error = error_of(code_of(row.code), f"{place}: {row.detail}")
            else:
                try:
                    view = BatchView(row.batch, check_envelope(row.batch))
                    record, message_id = view.record(0), view.message_id(0)
                except DledgerError as bad:
                    raise failure(bad, write=False) from None
            topic = self.cluster.routes.topic_by_id(row.topic_id)
            found.append(
                FoundRecord(
                    topic=topic.name if topic is not None else "",
                    topic_id=row.topic_id,
                    queue=row.queue,
                    offset=row.offset,
                    store_time_ms=row.store_time_ms,
                    message_id=message_id,
                    content=record,
                    error=error,
                )
            )
        return found


def _hold_of(row: pb.ListHoldsReply.Hold, group: str) -> QueueHold:
    return QueueHold(
        topic=row.topic,
        topic_id=row.topic_id,
        group=group,
        queue=row.queue,
        owner=row.owner,
        offset=row.offset,
        until_ms=row.until_ms,
    )


def _status_of(reply: pb.StatusReply, address: str) -> MemberStatus:
    return MemberStatus(
        cluster=reply.cluster,
        group=reply.group,
        member=reply.member,
        address=address,
        role=reply.role,
        term=reply.term,
        leader=reply.leader,
        leader_address=reply.leader_address,
        first_index=reply.first_index,
        last_index=reply.last_index,
        durable_index=reply.durable_index,
        commit_index=reply.commit_index,
        applied_index=reply.applied_index,
        first_position=reply.first_position,
        last_position=reply.last_position,
        digest=reply.digest,
        flush_mode=reply.flush_mode,
        format_level=reply.format_level,
        group_id=reply.group_id,
        incarnation=reply.incarnation,
        reason=reply.reason,
        topics_problem=reply.topics_problem,
        members=tuple(
            MemberProgress(
                member=row.member,
                address=row.address,
                is_connected=row.connected,
                match_index=row.match_index,
                next_index=row.next_index,
                inflight_bytes=row.inflight_bytes,
                incarnation=row.incarnation,
                is_quarantined=row.quarantined,
                clock_offset_ms=row.clock_offset_ms if row.HasField("clock_offset_ms") else None,
            )
            for row in reply.members
        ),
        is_control_group=reply.control_group,
        is_disk_low=reply.disk_low,
        clock_offset_ms=reply.clock_offset_ms,
        is_clock_off=reply.clock_off,
        version=reply.version,
    )
