"""Every series of a member, with its labels and its meaning.

Owns: names. Where RocketMQ 5 has a series for the same thing, the series has RocketMQ's name, unit
and labels, and `broker_group` beside them; all others begin with `dledger_`. `docs/generate.py`
makes a page of this module. Not: values, which sources read from the live state.

All series have the labels cluster, node_type ("broker") and node_id (the member).
"""

from typing import Final

from dledger_monitoring.series import Series, counter, gauge, histogram

GROUP: Final = "broker_group"
TOPIC: Final = (GROUP, "topic", "is_system")
CONSUMED: Final = (GROUP, "consumer_group", "topic", "is_retry")

# The process.

BUILD: Final = gauge("dledger_build_info", "1; the label names the version.", "version")
READY: Final = gauge("dledger_ready", "1 while `/readyz` says that the member serves.")
LEFT_OUT: Final = gauge(
    "dledger_metrics_left_out",
    "Topics, or pairs of a consumer group and a topic, that have no series of their own: "
    "`metrics.series_max` is reached. The sums of a broker group count them.",
    GROUP, "what",
)  # fmt: skip
WATERMARK: Final = gauge(
    "rocketmq_processor_watermark",
    "What waits or runs now, for each bound of the admission.",
    "processor",
)
ADMISSION_LIMIT: Final = gauge(
    "dledger_admission_limit", "The limit of the same bound: a key of `[admission]`.", "processor"
)
PRODUCERS: Final = gauge("rocketmq_producer_connections", "Append streams.")
CONSUMERS: Final = gauge("rocketmq_consumer_connections", "Sessions of consumers.")
RPC_LATENCY: Final = histogram(
    "rocketmq_rpc_latency",
    "Milliseconds of a unary call, by the name of the call; calls that are forwarded or refused "
    "count too.",
    "request_code",
)
REFUSED: Final = counter(
    "dledger_refused_total",
    "Batches and unary calls that this member answered with an error, by its code.",
    "code",
)

# A broker group at this member.

PERMISSION: Final = gauge(
    "rocketmq_broker_permission",
    "6: reads and writes; 4: reads alone, because the disk is low or no leader is known; 0: "
    "nothing, because the member is unformed, in quarantine or stopped.",
    GROUP,
)
ROLE: Final = gauge(
    "dledger_role", "1 for the role that the member has, 0 for others.", GROUP, "role"
)
TERM: Final = gauge("dledger_term", "The term.", GROUP)
HAS_LEADER: Final = gauge("dledger_has_leader", "1 while the member knows a leader.", GROUP)
CAMPAIGNS: Final = counter(
    "dledger_campaigns_total", "Elections that this member asked for.", GROUP
)
LEADER_CHANGES: Final = counter(
    "dledger_leader_changes_total", "How often this member saw another leader or term.", GROUP
)
EVENTS: Final = counter(
    "dledger_events_total", "Events of the Raft group, by the name of their log line.",
    GROUP, "event",
)  # fmt: skip
INDEX: Final = gauge(
    "dledger_log_index",
    "Places in the log: `first`, `last`, `durable` (on this disk), `commit` (known as committed), "
    "`applied`, `saved` (in a saved state).",
    GROUP, "place",
)  # fmt: skip
COMMIT_LAG: Final = gauge(
    "dledger_commit_lag_entries", "Entries of this log that are not known as committed.", GROUP
)
APPLY_LAG: Final = gauge(
    "dledger_apply_lag_entries", "Committed entries that are not applied here.", GROUP
)
PEER_MATCH: Final = gauge(
    "dledger_peer_match_index",
    "The last entry that the leader knows to be on a peer's disk; of a leader alone.",
    GROUP, "peer",
)  # fmt: skip
PEER_LAG: Final = gauge(
    "dledger_peer_lag_entries",
    "Entries of the leader's log behind that one; of a leader alone.",
    GROUP, "peer",
)  # fmt: skip
PEER_QUARANTINED: Final = gauge(
    "dledger_peer_quarantined",
    "1 while the leader knows that a peer is in quarantine; of a leader alone.",
    GROUP, "peer",
)  # fmt: skip
PEER_SILENT: Final = gauge(
    "dledger_peer_silent_seconds", "For so long there is no link to a peer; 0: there is one.",
    GROUP, "peer",
)  # fmt: skip
LINK_UP: Final = gauge("dledger_link_up", "1 while the link to a peer stands.", GROUP, "peer")
LINK_CONNECTS: Final = counter(
    "dledger_link_connects_total", "How often a peer accepted this member's link.", GROUP, "peer"
)
WRITE_SECONDS: Final = histogram(
    "dledger_write_seconds",
    'Seconds of a write round of the log: written, and with `flush = "sync"` synced.',
    GROUP,
)
APPEND_SECONDS: Final = histogram(
    "dledger_append_seconds",
    "Seconds from a proposal to its outcome, at the leader: gathering, the disks of a majority, "
    "apply.",
    GROUP,
)
CLOCK_OFFSET: Final = gauge(
    "dledger_clock_offset_seconds", "This member's clock less the majority's median.", GROUP
)
CLOCK_OFF: Final = gauge(
    "dledger_clock_off", "1 while the clock is off by more than a stamp may be.", GROUP
)

# Its disk.

STORAGE_SIZE: Final = gauge("rocketmq_storage_size", "Bytes of the log.", GROUP)
FLUSH_BEHIND: Final = gauge(
    "rocketmq_storage_flush_behind_bytes",
    "Bytes of the log that are written and not synced.",
    GROUP,
)
DISPATCH_BEHIND: Final = gauge(
    "rocketmq_storage_dispatch_behind_bytes",
    "Bytes at the end of the log that are not applied, so no reader sees them.",
    GROUP,
)
RESERVE_TIME: Final = gauge(
    "rocketmq_storage_message_reserve_time",
    "Milliseconds since the oldest message was stored that a queue still holds; none when all "
    "queues are empty.",
    GROUP,
)
SEGMENTS: Final = gauge("dledger_segments", "Segments of the log.", GROUP)
DISK_FREE: Final = gauge(
    "dledger_disk_free_bytes", "Free bytes of the disk, as of the last look.", GROUP
)
DISK_ROOM: Final = gauge(
    "dledger_disk_low",
    "0: there is room; 1: only writes that free space are taken; 2: all writes are refused.",
    GROUP,
)
STATE_UNSAVED: Final = gauge(
    "dledger_state_unsaved_bytes", "Memory of rows of the state that are not saved.", GROUP
)
REFILL: Final = gauge("dledger_refill_active", "1 while the member is refilled by a peer.", GROUP)
REFILL_LEFT: Final = gauge(
    "dledger_refill_left_bytes", "Bytes of log that the refill has yet to fetch.", GROUP
)
SCRUB: Final = gauge("dledger_scrub_active", "1 while the member reads its log for damage.", GROUP)
SCRUB_READ: Final = gauge("dledger_scrub_read_bytes", "What the newest scrub has read.", GROUP)
SCRUB_TOTAL: Final = gauge("dledger_scrub_log_bytes", "What it has to read.", GROUP)
DAMAGE_FOUND: Final = counter(
    "dledger_damage_found_total", "Damaged places of the disk, by scrubs and by reads.", GROUP
)
DAMAGE_MENDED: Final = counter(
    "dledger_damage_mended_total", "Places that were mended from peers.", GROUP
)
DAMAGE_LEFT: Final = gauge("dledger_damage_left", "Places that are damaged now.", GROUP)
SNAPSHOT_MAKING: Final = gauge("dledger_snapshot_active", "1 while a snapshot is made.", GROUP)
SNAPSHOTS_KEEP: Final = gauge(
    "dledger_snapshots_keep_space",
    "1 while snapshots may keep space of deleted messages.",
    GROUP,
)

# Topics and messages.

TOPICS: Final = gauge("rocketmq_topic_number", "Topics, without those of consumer groups.", GROUP)
CONSUMER_GROUPS: Final = gauge("rocketmq_consumer_group_number", "Consumer groups.", GROUP)
MESSAGES_IN: Final = counter(
    "rocketmq_messages_in_total", "Messages that this member stored as leader.",
    *TOPIC, "message_type",
)  # fmt: skip
BYTES_IN: Final = counter(
    "rocketmq_throughput_in_total",
    "Bytes of their batches, as they lie in the log (compressed).",
    *TOPIC, "message_type",
)  # fmt: skip
MESSAGES_OUT: Final = counter(
    "rocketmq_messages_out_total", "Messages that this member sent to readers.", *TOPIC
)
BYTES_OUT: Final = counter(
    "rocketmq_throughput_out_total", "Bytes of their batches, as they lie in the log.", *TOPIC
)
MESSAGE_SIZE: Final = histogram(
    "rocketmq_message_size",
    "Bytes of a stored message: an equal share of its batch.",
    GROUP,
)
ALL_MESSAGES_IN: Final = counter(
    "dledger_messages_in_total", "The sum over all topics, those without series included.", GROUP
)
ALL_BYTES_IN: Final = counter("dledger_bytes_in_total", "The same of the bytes.", GROUP)
ALL_MESSAGES_OUT: Final = counter("dledger_messages_out_total", "The same of messages out.", GROUP)
ALL_BYTES_OUT: Final = counter("dledger_bytes_out_total", "The same of bytes out.", GROUP)
TIMERS: Final = gauge(
    "rocketmq_timing_messages", "Delayed messages and retries that wait, over all topics.", GROUP
)
TIMER_LATENESS: Final = gauge(
    "rocketmq_timer_dequeue_latency",
    "Milliseconds since the earliest timer is due that has not fired; of a leader alone.",
    GROUP,
)

# Consumer groups; all of a leader alone.

LAG: Final = gauge(
    "rocketmq_consumer_lag_messages",
    "Messages that a consumer group, or a name that stores offsets, is not done with, over the "
    "queues of this broker group where it has begun.",
    *CONSUMED,
)
LAG_LATENCY: Final = gauge(
    "rocketmq_consumer_lag_latency",
    "Milliseconds since the first of them was stored; 0: none waits.",
    *CONSUMED,
)
READY_MESSAGES: Final = gauge(
    "rocketmq_consumer_ready_messages",
    "Of them: those that do not wait for the end of a pause between attempts.",
    *CONSUMED,
)
LOST: Final = gauge(
    "dledger_consumer_lost_messages",
    "Messages above its offset that were deleted before it was done with them; its next commit "
    "ends it.",
    *CONSUMED,
)
PAUSED: Final = gauge(
    "dledger_consumer_group_paused",
    "1 while a consumer group is handed nothing: a wave of failures or its settings pause it.",
    GROUP, "consumer_group",
)  # fmt: skip
TO_DEAD_LETTERS: Final = counter(
    "rocketmq_send_to_dlq_messages_total",
    "Messages that ever became dead letters of a consumer group.",
    GROUP, "consumer_group",
)  # fmt: skip
DEAD_LETTERS: Final = gauge(
    "dledger_dead_letters", "Dead letters that nobody has settled.", GROUP, "consumer_group"
)

ALL: Final[tuple[Series, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Series)
)
"""In the order of this module."""
