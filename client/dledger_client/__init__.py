"""Producers and consumers of a dledger cluster, asyncio and synchronous.

`AsyncProducer`, `AsyncConsumer`, `AsyncAdmin` run on the caller's event loop; `Producer`,
`Consumer`, `Admin` are the same with blocking calls, generated from them, for any number of
threads. Exceptions: `dledger_client.errors`. Needs grpcio, protobuf and crc32c; numpy, zstandard
and lz4 are used when present.
"""

from dledger_client._core.consumer.state import Place
from dledger_client._core.routes import GroupRoute, Member, TopicRoute
from dledger_client._shell.futures import AsyncSendFuture, SendFuture
from dledger_client.admin import Admin
from dledger_client.admin_async import AsyncAdmin
from dledger_client.config import ConnectionConfig, ConsumerConfig, ProducerConfig, StartAt
from dledger_client.consumer import Consumer
from dledger_client.consumer_async import AsyncConsumer
from dledger_client.errors import (
    BufferFull,
    ClientClosed,
    ClientError,
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
    Overloaded,
    ProducerFenced,
    ProducerRejected,
    QueueNotFound,
    ServerBug,
    TooManyTopics,
    TopicExists,
    TopicNotFound,
    Unavailable,
    UnknownOutcome,
    UnreadableData,
)
from dledger_client.latency import TABLE_4X, TABLE_5X, LatencyTable
from dledger_client.model import (
    Acknowledgement,
    EntryMark,
    FoundRecord,
    MemberProgress,
    MemberStatus,
    Message,
    ProducerStatus,
    QueueBounds,
    QueueHold,
    SendResult,
    TopicKind,
)
from dledger_client.producer import Producer
from dledger_client.producer_async import AsyncProducer
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
    "AsyncSendFuture",
    "BufferFull",
    "ClientClosed",
    "ClientError",
    "Compression",
    "ConnectionConfig",
    "ConsumedRecord",
    "Consumer",
    "ConsumerConfig",
    "CorruptData",
    "DeadlineExpired",
    "EntryMark",
    "FoundRecord",
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
    "Overloaded",
    "Place",
    "Producer",
    "ProducerConfig",
    "ProducerFenced",
    "ProducerRejected",
    "ProducerStatus",
    "QueueBounds",
    "QueueHold",
    "QueueNotFound",
    "QueueSelector",
    "RecordBatch",
    "SendFuture",
    "SendResult",
    "ServerBug",
    "StartAt",
    "TooManyTopics",
    "TopicExists",
    "TopicKind",
    "TopicNotFound",
    "TopicQueue",
    "TopicRoute",
    "Unavailable",
    "UnknownOutcome",
    "UnreadableData",
    "__version__",
    "by_groups",
    "by_hash",
    "by_random",
]
