"""Every bound that both ends of a wire must agree on, with the relations between them.

Sizes are bytes, times milliseconds. Bounds of a single process live in its own configuration.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# Names and records (RocketMQ's limits: Validators.java, MessageConst).
TOPIC_NAME_LENGTH_MAX: Final = 127
GROUP_NAME_LENGTH_MAX: Final = 120
BODY_SIZE_MAX: Final = 4 * MIB
PROPERTIES_SIZE_MAX: Final = 32_767
PROPERTY_NAME_SIZE_MAX: Final = 255
PROPERTY_SIZE_MIN: Final = 5
"""Encoded: two sizes, and a name of one byte."""
PROPERTIES_PER_RECORD_MAX: Final = 1_024
"""Tag and keys are two of them. It bounds what checking a batch costs a member's loop."""
TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999: people and libraries can work with every time up to here."""
RETENTION_DEFAULT: Final = 0
"""A bound of a topic's retention: the one that the cluster is configured with."""
RETENTION_FOREVER: Final = (1 << 64) - 1
"""No bound."""
RETENTION_BY_KEY: Final = (1 << 64) - 2
"""Instead of a bound of time: the topic is compacted, the last message of each key stays."""
OFFSET_MAX: Final = (1 << 63) - 1
"""The largest offset that the wire holds; no queue comes near it."""
MEMBERS_MAX: Final = 7
"""Voters of a broker group."""
ADDRESS_LENGTH_MAX: Final = 300
"""A host name has 253 at most, in brackets with a zone less; then a colon and the port."""
HOST_LABEL_LENGTH_MAX: Final = 63
"""Between two dots of a host name (RFC 1035)."""
KEYS_PER_RECORD_MAX: Final = 64
QUEUES_PER_TOPIC_MAX: Final = 1_024

TOPICS_MAX: Final = 65_536
"""Topics of a cluster that are not deleted."""
DELETED_TOPICS_MAX: Final = 65_536
"""Rows of deleted topics, kept beside them. At the limit no topic is created."""
CALL_TIMEOUT_MS_MAX: Final = 3_600_000
"""The longest budget that a client gives a call with all its tries."""
DELETED_TOPIC_KEPT_MS: Final = 2 * 3_600_000
"""How long a deleted topic is remembered at least."""

# Timers.
DELAY_MS_MAX: Final = 40 * 24 * 3_600 * 1_000
"""How far ahead of the leader's stamp a delivery time may lie (RocketMQ takes three days)."""
TIMERS_MAX: Final = 8_000_000
"""Timers that wait in a broker group."""
TIMERS_FOR_RETRIES: Final = TIMERS_MAX // 8
"""Of them: those that only failures of consumers take, not what producers delay."""
SCHEDULES_PER_TOPIC_MAX: Final = 100
"""Schedules of a topic in each broker group."""
SCHEDULE_SIZE_MAX: Final = 64 * KIB
"""Of the batch that a schedule sends: it lies in the state."""
SCHEDULE_TEXT_SIZE_MAX: Final = 127
"""Of a schedule's name, its cron expression and its time zone."""
SCHEDULES_PER_PAGE_MAX: Final = 100
TIMERS_PER_PAGE_MAX: Final = 1_000
TIMERS_PER_PAGE_DEFAULT: Final = 100

# Batches and entries.
BATCH_RECORDS_MAX: Final = 65_535
BATCH_SIZE_MAX: Final = BODY_SIZE_MAX + 256 * KIB
BODIES_SIZE_MAX: Final = BATCH_SIZE_MAX
"""Decompressed size of one batch's bodies: the most that decoding allocates."""
BATCH_HEADER_SIZE_MAX: Final = 4 * KIB
"""Header with its tagged extensions."""
ENTRY_PAYLOADS_MAX: Final = 4_096
ENTRY_SIZE_MAX: Final = 8 * MIB
ENTRY_SIZE_TARGET: Final = 1 * MIB
"""A leader closes an entry at this size; a larger one holds a single proposal."""
ENTRY_ROWS_MAX: Final = 131_072
"""Rows that apply reads for the commands of one entry, at most: some tenths of a second."""

# Frames. A stream message carries as many batches as are waiting, up to the target (D12).
FRAME_SIZE_TARGET: Final = 1 * MIB
FRAME_SIZE_MAX: Final = 16 * MIB
FRAME_ROWS_MAX: Final = 4_096
"""Batches of an append frame, rows of an answer frame, spans of a fetch frame."""
FETCH_ASSIGNMENTS_MAX: Final = 1_024
"""Queues of one group that one fetch stream reads."""
QUEUES_PER_CALL_MAX: Final = QUEUES_PER_TOPIC_MAX
"""Queues that one call may name: to ask bounds or offsets, plan reads, commit or hold."""
PROGRESS_PER_CALL_MAX: Final = 64
"""Queues that one call may ask the progress of: for each a member looks at up to 4,096 rows."""
LOOKS_PER_CALL_MAX: Final = 2_048
"""Rows that a member looks at for one plan, for samples and times of all queues of the plan. They
take some ten milliseconds of the member's loop."""
LOOKUP_ANSWER_SIZE_TARGET: Final = FRAME_SIZE_TARGET
"""Records of one answer to a lookup by key, together; a larger one is answered alone."""
LOOKUP_READ_SIZE_TARGET: Final = 16 * MIB
"""Batches read for one answer to a lookup by key, together; at least one."""
LOOKUP_LIMIT_DEFAULT: Final = 32
LOOKUP_LIMIT_MAX: Final = 1_024
"""Records of one answer to a lookup by key."""
TOPICS_PAGE_SIZE: Final = FRAME_SIZE_TARGET
"""Bytes of topics in one answer of a list; one topic alone is smaller."""
TOPICS_PER_PAGE_MAX: Final = 4_096
STREAM_STALL_MS: Final = 60_000
"""How long a message of a stream waits for its reader, before the stream ends as BUSY."""
DETAIL_SIZE_MAX: Final = 1_024
"""Sentence or hint of an answer; a longer one is cut."""

# Idempotent producers (D11).
PRODUCER_BATCHES_IN_FLIGHT_MAX: Final = 256
PRODUCER_EXPIRY_MS: Final = 7 * 24 * 3_600 * 1_000

# Consumer groups (D20).
CONSUMERS_PER_GROUP_MAX: Final = 1_000
"""Consumers of one consumer group."""
QUEUES_PER_CONSUMER_GROUP_MAX: Final = 16 * QUEUES_PER_TOPIC_MAX
"""Queues that one consumer group shares out."""
SUBSCRIPTIONS_MAX: Final = 64
"""Topics and patterns that a consumer subscribes to."""
PATTERNS_MAX: Final = 16
"""Of them: patterns."""
PATTERN_STATES_MAX: Final = 4_096
"""States of all patterns of a consumer group: what one name costs the coordinator's loop."""

# Channels (D10).
RECONNECT_BACKOFF_MIN_MS: Final = 50
RECONNECT_BACKOFF_MAX_MS: Final = 1_000

assert DELETED_TOPIC_KEPT_MS >= 2 * CALL_TIMEOUT_MS_MAX, (
    "no creation is called too old within its caller's budget"
)
SCRUB_RATE_MIN: Final = 64 * KIB
"""Bytes in a second. A slower scrub would be busy with one piece for many seconds."""

assert BODY_SIZE_MAX + PROPERTIES_SIZE_MAX < BATCH_SIZE_MAX, "the largest record must fit a batch"
assert BATCH_SIZE_MAX + 64 * KIB < ENTRY_SIZE_MAX, "the largest batch must fit an entry"
assert ENTRY_SIZE_MAX + FRAME_SIZE_TARGET < FRAME_SIZE_MAX, "the largest entry must fit a frame"
