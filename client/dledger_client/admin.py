# Generated from admin_async.py by client/generate_sync.py. Change that file, not this one.
"""Administration by blocking calls: each runs its twin of `admin_async.py`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Self, Unpack

from dledger_client._core.consumer.state import Place
from dledger_client._core.routes import GroupRoute, TopicRoute
from dledger_client._shell.runner import SyncRunner
from dledger_client.admin_async import AsyncAdmin
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError
from dledger_client.model import (
    ConsumerGroup,
    ConsumerGroupSettings,
    EntryMark,
    FoundRecord,
    GroupDescription,
    MemberStatus,
    QueueBounds,
    QueueHold,
    QueueProgress,
    TopicKind,
    WaitingTimer,
)


class Admin:
    """Topics, offsets, the head of the log, groups and members, lookups.

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
        self._runner = SyncRunner()

    def start(self) -> Self:
        """Connect, in the background; `with` does it. Returns itself."""
        self._runner.run(self._admin.start())
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; calls that wait end as ClientClosed."""
        return self._runner.run(self._admin.close())

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
    ) -> TopicRoute:
        """Create a topic, on all groups or on some; zeros are the cluster's defaults.

        `permission` has the bits 4 read and 2 write. The same topic again is no error; TopicExists
        when it exists with another configuration. Groups that could not be reached take it later.
        """
        return self._runner.run(
            self._admin.create_topic(
                name,
                queues_per_group=queues_per_group,
                read_queues=read_queues,
                permission=permission,
                groups=groups,
                kind=kind,
            )
        )

    def update_topic(
        self,
        name: str,
        *,
        permission: int = 0,
        read_queues: int = 0,
        layout: Sequence[tuple[str, int]] = (),
    ) -> TopicRoute:
        """Change a topic; zeros and an empty layout leave things as they are.

        `layout` lists (group, queues) of all queues that take messages from now on, in the order in
        which they are numbered. A number stays with its group for good; a queue that is left out is
        closed: it is read until `read_queues` is lowered, and whoever opens it again goes on in it.
        """
        return self._runner.run(
            self._admin.update_topic(
                name, permission=permission, read_queues=read_queues, layout=layout
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

    # Consumer groups.

    def create_consumer_group(
        self, name: str, **settings: Unpack[ConsumerGroupSettings]
    ) -> ConsumerGroup:
        """Create a consumer group; what is left out of the settings has the cluster's default.

        The same group again is no error; ConsumerGroupExists when it exists with other settings.
        """
        return self._runner.run(self._admin.create_consumer_group(name, **settings))

    def update_consumer_group(
        self, name: str, **settings: Unpack[ConsumerGroupSettings]
    ) -> ConsumerGroup:
        """Change the settings that are given; the others stay as they are."""
        return self._runner.run(self._admin.update_consumer_group(name, **settings))

    def delete_consumer_group(self, name: str) -> ConsumerGroup:
        """Delete a consumer group with its offsets, retries and dead letters; return it."""
        return self._runner.run(self._admin.delete_consumer_group(name))

    def consumer_group(self, name: str) -> ConsumerGroup:
        """Return a consumer group as the control group has it; ConsumerGroupNotFound."""
        return self._runner.run(self._admin.consumer_group(name))

    def consumer_groups(self) -> list[ConsumerGroup]:
        """Return all consumer groups as the control group has them, by name."""
        return self._runner.run(self._admin.consumer_groups())

    # Offsets.

    def queue_offsets(self, topic: str, *, linearizable: bool = True) -> dict[int, QueueBounds]:
        """Return minimum and maximum of each queue; confirmed by a quorum if `linearizable`."""
        return self._runner.run(self._admin.queue_offsets(topic, linearizable=linearizable))

    def offset_by_time(self, topic: str, queue: int, time_ms: int) -> int:
        """Return the first offset stored at or after a time; the maximum if there is none."""
        return self._runner.run(self._admin.offset_by_time(topic, queue, time_ms))

    def read_offsets(self, consumer_group: str, topic: str) -> dict[int, int]:
        """Return a consumer group's offsets, the next to consume, by queue; none: left out."""
        return self._runner.run(self._admin.read_offsets(consumer_group, topic))

    def commit_offsets(
        self, consumer_group: str, offsets: Mapping[Place, int], *, reset: bool = False
    ) -> None:
        """Store a consumer group's offsets; without `reset` OffsetBehind for one that goes back."""
        return self._runner.run(self._admin.commit_offsets(consumer_group, offsets, reset=reset))

    def group_progress(self, consumer_group: str, topic: str) -> dict[int, QueueProgress]:
        """Return how far a consumer group is in each queue of a topic, and what waits there."""
        return self._runner.run(self._admin.group_progress(consumer_group, topic))

    def describe_consumer_group(self, consumer_group: str) -> GroupDescription:
        """Return the consumers of a group, and who has which queue."""
        return self._runner.run(self._admin.describe_consumer_group(consumer_group))

    def reset_offsets(
        self,
        consumer_group: str,
        topic: str,
        *,
        to: str = "",
        time_ms: int | None = None,
        offset: int | None = None,
        delta: int | None = None,
        queues: Sequence[int] = (),
    ) -> dict[int, int]:
        """Move a consumer group in a topic, forward or back; return the new floors by queue.

        To "earliest", to "latest" (which skips the backlog), to the first record stored at
        `time_ms` or later, to an `offset`, or by `delta` records, as far as there are any. In all
        queues, or in some. It works with consumers and without: those that run begin there at once,
        and none commits over it. Nothing is moved when an offset is out of range.
        """
        return self._runner.run(
            self._admin.reset_offsets(
                consumer_group,
                topic,
                to=to,
                time_ms=time_ms,
                offset=offset,
                delta=delta,
                queues=queues,
            )
        )

    def clone_offsets(self, source: str, target: str, topic: str) -> dict[int, int]:
        """Move a consumer group to where another one is; return the new floors by queue."""
        return self._runner.run(self._admin.clone_offsets(source, target, topic))

    def resume_consumer_group(self, consumer_group: str) -> dict[str, str]:
        """End the pauses that waves of failures began; return why, by broker group."""
        return self._runner.run(self._admin.resume_consumer_group(consumer_group))

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
