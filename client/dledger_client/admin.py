# Generated from admin_async.py by client/generate_sync.py. Change that file, not this one.
"""Administration by blocking calls: each runs its twin of `admin_async.py`."""

from collections.abc import Iterable, Mapping, Sequence

from dledger_client._core.routes import GroupRoute, TopicRoute
from dledger_client._core.schedules import Schedule
from dledger_client._shell.group.administration import GroupAdministration
from dledger_client._shell.runner import SyncRunner
from dledger_client.admin_async import AsyncAdmin
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError
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
from dledger_proto.cleanup import DELETE
from dledger_proto.limits import RETENTION_DEFAULT


class Admin(GroupAdministration):
    """Topics, consumer groups, the head of the log, groups and members, lookups.

    ```
    with Admin("127.0.0.1:9876") as admin:
        admin.create_topic("orders", queues_per_group=4)
    ```

    `bootstrap` names name servers or members, "host:port", several with commas or as a list. A
    call is repeated within `ConnectionConfig.call_timeout_ms`. After an unknown outcome it is
    repeated only if a second call changes nothing more; else it raises UnknownOutcome.
    """

    def __init__(
        self, bootstrap: str | Iterable[str], config: ConnectionConfig | None = None
    ) -> None:
        self._admin = AsyncAdmin(bootstrap, config)
        self._group_administration = self._admin
        self._runner = SyncRunner()

    # Topics.

    def create_topic(
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
        return self._runner.run(
            self._admin.create_topic(
                name,
                queues_per_group=queues_per_group,
                read_queues=read_queues,
                permission=permission,
                groups=groups,
                kind=kind,
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
                cleanup=cleanup,
            )
        )

    def update_topic(
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
        return self._runner.run(
            self._admin.update_topic(
                name,
                permission=permission,
                read_queues=read_queues,
                layout=layout,
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
                cleanup=cleanup,
            )
        )

    def delete_topic(self, name: str) -> TopicRoute:
        """Delete a topic and everything in it; a new one of the same name is another topic."""
        return self._runner.run(self._admin.delete_topic(name))

    def describe_topic(self, name: str) -> TopicRoute:
        """Return a topic as the control group has it; TopicNotFound."""
        return self._runner.run(self._admin.describe_topic(name))

    def list_topics(self) -> list[TopicRoute]:
        """Return all topics as the control group has them, by name."""
        return self._runner.run(self._admin.list_topics())

    # Offsets.

    def queue_offsets(self, topic: str, *, linearizable: bool = True) -> dict[int, QueueBounds]:
        """Return minimum and maximum of each queue; confirmed by a quorum if `linearizable`."""
        return self._runner.run(self._admin.queue_offsets(topic, linearizable=linearizable))

    def offset_by_time(self, topic: str, queue: int, time_ms: int) -> int:
        """Return the first offset stored at or after a time; the maximum if there is none."""
        return self._runner.run(self._admin.offset_by_time(topic, queue, time_ms))

    # The head of the log.

    def trim(self, topic: str, queue: int, offset: int) -> int:
        """Delete the records of a queue below `offset`; return the new minimum.

        The minimum stays below `offset` where a hold keeps records; Held when it keeps them all.
        """
        return self._runner.run(self._admin.trim(topic, queue, offset))

    def hold(self, owner: str, topic: str, queue: int, offset: int, ttl_ms: int) -> int:
        """Keep all records from `offset` on for `ttl_ms`; return the hold's end, ms since 1970."""
        return self._runner.run(self._admin.hold(owner, topic, queue, offset, ttl_ms))

    def release_hold(self, owner: str, topic: str, queue: int) -> None:
        """End a hold before its time."""
        return self._runner.run(self._admin.release_hold(owner, topic, queue))

    def holds(
        self, topic: str = "", queue: int | None = None, *, limit: int = 1_000
    ) -> list[QueueHold]:
        """Return up to `limit` holds that last: of a queue, of a topic, or of all topics."""
        return self._runner.run(self._admin.holds(topic, queue, limit=limit))

    # Timers.

    def recall(self, message_id: bytes | str) -> int:
        """Take a delayed message back; return when it was due, ms since 1970.

        Raises NotFound when no timer has the message: it was delivered or recalled.
        """
        return self._runner.run(self._admin.recall(message_id))

    def timers(
        self, topic: str = "", *, from_ms: int = 0, to_ms: int = 0, limit: int = 1_000
    ) -> list[WaitingTimer]:
        """Return up to `limit` timers that are due from one time to another (0: no end), by time.

        Delayed messages and retries, of a topic or of all topics.
        """
        return self._runner.run(
            self._admin.timers(topic, from_ms=from_ms, to_ms=to_ms, limit=limit)
        )

    # Schedules.

    def set_schedule(
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
        return self._runner.run(
            self._admin.set_schedule(
                topic,
                name,
                cron,
                body,
                time_zone=time_zone,
                ordering_key=ordering_key,
                queue=queue,
                tag=tag,
                keys=keys,
                properties=properties,
            )
        )

    def schedules(self, topic: str = "") -> list[Schedule]:
        """Return the schedules of a topic, or of all topics, by topic and name."""
        return self._runner.run(self._admin.schedules(topic))

    def delete_schedule(self, topic: str, name: str) -> None:
        """Delete a schedule; NotFound when the topic has none of this name. What it sent stays."""
        return self._runner.run(self._admin.delete_schedule(topic, name))

    # Groups and members.

    def groups(self) -> list[GroupRoute]:
        """Return all groups: leader, term, members."""
        return self._runner.run(self._admin.groups())

    def status(self, address: str, group: str = "") -> MemberStatus:
        """Return the status of the member at `address`; name the `group` if it serves several."""
        return self._runner.run(self._admin.status(address, group))

    def statuses(self) -> dict[tuple[str, str], MemberStatus | ClientError]:
        """Return the status of every member by (group, member), or the error of asking it."""
        return self._runner.run(self._admin.statuses())

    def transfer_leadership(self, group: str, target: str = "") -> tuple[str, int]:
        """Hand a group's leadership to `target` (empty: the member that holds most).

        Returns the new leader and its term. Raises UnknownOutcome when this client hears of no new
        leader in time. Calls under way do not fail because of the transfer.
        """
        return self._runner.run(self._admin.transfer_leadership(group, target))

    def lift_quarantine(self, address: str, group: str, member: str, sentence: str) -> None:
        """Make the member at `address` trust `member`, which lost its data, before all agree.

        Acknowledged messages may be lost that way. `sentence` must say that this is accepted.
        """
        return self._runner.run(self._admin.lift_quarantine(address, group, member, sentence))

    def log_entries(self, address: str, group: str = "", from_index: int = 0) -> list[EntryMark]:
        """Return index, term and CRC of every committed entry of one member's log."""
        return self._runner.run(self._admin.log_entries(address, group, from_index))

    # Lookups.

    def lookup_key(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = 0, limit: int = 32
    ) -> list[FoundRecord]:
        """Return up to `limit` records of a topic that have this key, stored between two times.

        The records of a group's newest batch come first. Answers have about a MiB each. A record
        that cannot be decoded says so in `error`, and its `record` raises that.
        """
        return self._runner.run(
            self._admin.lookup_key(topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit)
        )

    def lookup_message(self, message_id: bytes | str) -> list[FoundRecord]:
        """Return the record with an id (24 bytes, or 48 hex digits); [] if there is none."""
        return self._runner.run(self._admin.lookup_message(message_id))

    def lookup_offset(self, topic: str, queue: int, offset: int) -> list[FoundRecord]:
        """Return the record at an offset of a queue."""
        return self._runner.run(self._admin.lookup_offset(topic, queue, offset))

    # What became of a message.

    def explain(self, topic: str, queue: int, offset: int) -> list[StoryLine]:
        """Return what became of the record at an offset of a queue, in the order of the log.

        Every consumer group that had it is told: claims, commits, failures, retries, dead letters,
        resets. It reads the log of the record's broker group from the record on.
        """
        return self._runner.run(self._admin.explain(topic, queue, offset))

    def explain_message(self, message_id: bytes | str) -> list[StoryLine]:
        """Return what became of the message with an id; NotFound. As `explain`."""
        return self._runner.run(self._admin.explain_message(message_id))
