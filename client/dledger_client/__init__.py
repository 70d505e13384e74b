"""Producers and consumers of a dledger cluster, asyncio and synchronous.

`AsyncProducer`, `AsyncConsumer`, `AsyncAdmin` run on the caller's event loop; `Producer`,
`Consumer`, `Admin` are the same with blocking calls, generated from them, for any number of
threads. Exceptions: `dledger_client.errors`. Needs grpcio, protobuf and crc32c; numpy, zstandard
and lz4 are used when present.

    _machine        What a client takes from its machine: wall clock and random bytes
    admin           Administration, blocking; generated
    admin_async     Administration: topics, offsets, holds, members, lookups
    config          Settings of producers, consumers and connections
    consumer        The consumer, blocking; generated
    consumer_async  The consumer: reads queues from chosen offsets, commits offsets
    errors          What users of this package catch: what is known, and what helps
    latency         Latency fault tolerance (S36, S37)
    model           The values that users of this package send and get back
    producer        The producer, blocking; generated
    producer_async  The producer: batched sends, in order per queue, each stored once
    push            The push consumer, blocking; generated
    push_async      The push consumer: calls a listener for each record, commits what is done
    records         Records as a consumer gets them
    selectors       Which queue a message goes to
    unreadable      Batches that cannot be decoded though their checksum holds
    _core/          The pure half of the client: decisions without I/O, clock or chance
    _shell/         The asyncio half of the client: channels, streams, tasks, timers
    arrow/          Records by columns: batches of the wire as Arrow record batches
    export/         Exports: a topic's committed log as Parquet files, each record exactly once
    reading/        Reading the committed log in bulk: plans frozen once, ranges as Arrow batches
    spark/          Spark reads committed logs, `format("dledger")`, and exports of them
"""

from dledger_client._core.consumer.state import Place
from dledger_client._core.routes import GroupRoute, Member, TopicRoute
from dledger_client._core.schedules import Schedule
from dledger_client._core.users import Policy, User, UserChange
from dledger_client._shell.futures import AsyncSendFuture, SendFuture
from dledger_client.admin import Admin
from dledger_client.admin_async import AsyncAdmin
from dledger_client.config import (
    ConnectionConfig,
    ConsumeOrder,
    ConsumerConfig,
    ProducerConfig,
    PushConfig,
    StartAt,
)
from dledger_client.consumer import Consumer
from dledger_client.consumer_async import AsyncConsumer
from dledger_client.errors import (
    BufferFull,
    ClientClosed,
    ClientError,
    ConsumerConflict,
    ConsumerFenced,
    ConsumerGroupExists,
    ConsumerGroupNotFound,
    CorruptData,
    DeadlineExpired,
    Held,
    InvalidRequest,
    MessageIllegal,
    MessageTooLarge,
    NoPermission,
    NothingFound,
    NotStored,
    OffsetBehind,
    OffsetOutOfRange,
    OffsetWasReset,
    Overloaded,
    ProducerFenced,
    ProducerRejected,
    QueueNotFound,
    ServerBug,
    TooManyTopics,
    TopicExists,
    TopicNotFound,
    Unauthenticated,
    Unavailable,
    UnknownOutcome,
    UnreadableData,
    UserExists,
    UserNotFound,
)
from dledger_client.latency import TABLE_4X, TABLE_5X, LatencyTable
from dledger_client.model import (
    Acknowledgement,
    ConsumerGroup,
    ConsumerGroupSettings,
    DeadLetter,
    DeadRecord,
    Delivery,
    EntryMark,
    FoundRecord,
    GroupConsumer,
    GroupDescription,
    MemberProgress,
    MemberStatus,
    Message,
    ProducerStatus,
    QueueBounds,
    QueueGrant,
    QueueHold,
    QueueProgress,
    Retry,
    SendResult,
    SettledRecords,
    StartFrom,
    StoryLine,
    SuspendedRecord,
    TopicKind,
    WaitingTimer,
)
from dledger_client.producer import Producer
from dledger_client.producer_async import AsyncProducer
from dledger_client.push import PushConsumer
from dledger_client.push_async import AsyncPushConsumer
from dledger_client.records import ConsumedRecord, RecordBatch
from dledger_client.selectors import QueueSelector, TopicQueue, by_groups, by_hash, by_random
from dledger_proto import __version__
from dledger_proto.batch.codec import Compression

__all__ = [
    "TABLE_4X",
    "TABLE_5X",
    "Acknowledgement",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncPushConsumer",
    "AsyncSendFuture",
    "BufferFull",
    "ClientClosed",
    "ClientError",
    "Compression",
    "ConnectionConfig",
    "ConsumeOrder",
    "ConsumedRecord",
    "Consumer",
    "ConsumerConfig",
    "ConsumerConflict",
    "ConsumerFenced",
    "ConsumerGroup",
    "ConsumerGroupExists",
    "ConsumerGroupNotFound",
    "ConsumerGroupSettings",
    "CorruptData",
    "DeadLetter",
    "DeadRecord",
    "DeadlineExpired",
    "Delivery",
    "EntryMark",
    "FoundRecord",
    "GroupConsumer",
    "GroupDescription",
    "GroupRoute",
    "Held",
    "InvalidRequest",
    "LatencyTable",
    "Member",
    "MemberProgress",
    "MemberStatus",
    "Message",
    "MessageIllegal",
    "MessageTooLarge",
    "NoPermission",
    "NotStored",
    "NothingFound",
    "OffsetBehind",
    "OffsetOutOfRange",
    "OffsetWasReset",
    "Overloaded",
    "Place",
    "Policy",
    "Producer",
    "ProducerConfig",
    "ProducerFenced",
    "ProducerRejected",
    "ProducerStatus",
    "PushConfig",
    "PushConsumer",
    "QueueBounds",
    "QueueGrant",
    "QueueHold",
    "QueueNotFound",
    "QueueProgress",
    "QueueSelector",
    "RecordBatch",
    "Retry",
    "Schedule",
    "SendFuture",
    "SendResult",
    "ServerBug",
    "SettledRecords",
    "StartAt",
    "StartFrom",
    "StoryLine",
    "SuspendedRecord",
    "TooManyTopics",
    "TopicExists",
    "TopicKind",
    "TopicNotFound",
    "TopicQueue",
    "TopicRoute",
    "Unauthenticated",
    "Unavailable",
    "UnknownOutcome",
    "UnreadableData",
    "User",
    "UserChange",
    "UserExists",
    "UserNotFound",
    "WaitingTimer",
    "__version__",
    "by_groups",
    "by_hash",
    "by_random",
]
