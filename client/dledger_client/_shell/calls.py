"""Every unary method that this package calls: one table."""

from typing import Final

from dledger_client._shell.wire import Method
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import routes_pb2

GET_ROUTES: Final = Method[routes_pb2.RoutesRequest, routes_pb2.RoutesReply](
    "Routes", "Get", routes_pb2.RoutesReply, write=False
)
WATCH_ROUTES: Final = "/dledger.v1.Routes/Watch"

REGISTER: Final = Method[pb.RegisterProducerRequest, pb.RegisterProducerReply](
    "Broker", "RegisterProducer", pb.RegisterProducerReply, write=True, repeatable=False
)
QUEUE_OFFSETS: Final = Method[pb.QueueOffsetsRequest, pb.QueueOffsetsReply](
    "Broker", "QueueOffsets", pb.QueueOffsetsReply, write=False
)
OFFSET_BY_TIME: Final = Method[pb.OffsetByTimeRequest, pb.OffsetByTimeReply](
    "Broker", "OffsetByTime", pb.OffsetByTimeReply, write=False
)
COMMIT_OFFSETS: Final = Method[pb.CommitOffsetsRequest, pb.CommitOffsetsReply](
    "Broker", "CommitOffsets", pb.CommitOffsetsReply, write=True
)
RESET_OFFSETS: Final = Method[pb.CommitOffsetsRequest, pb.CommitOffsetsReply](
    "Broker", "CommitOffsets", pb.CommitOffsetsReply, write=True, repeatable=False
)
"""With `reset`: a late copy undoes what was committed since."""
READ_OFFSETS: Final = Method[pb.ReadOffsetsRequest, pb.ReadOffsetsReply](
    "Broker", "ReadOffsets", pb.ReadOffsetsReply, write=False
)
LOOKUP_KEY: Final = Method[pb.LookupKeyRequest, pb.LookupReply](
    "Broker", "LookupKey", pb.LookupReply, write=False
)
LOOKUP_MESSAGE: Final = Method[pb.LookupMessageRequest, pb.LookupReply](
    "Broker", "LookupMessage", pb.LookupReply, write=False
)
LOOKUP_OFFSET: Final = Method[pb.LookupOffsetRequest, pb.LookupReply](
    "Broker", "LookupOffset", pb.LookupReply, write=False
)
PLAN_READS: Final = Method[pb.PlanReadsRequest, pb.PlanReadsReply](
    "Broker", "PlanReads", pb.PlanReadsReply, write=False
)

LOOK_BEFORE_CREATION: Final = Method[pb.CreateTopicRequest, pb.CreateTopicReply](
    "Admin", "CreateTopic", pb.CreateTopicReply, write=False
)
"""Without a `known_index`: creates nothing."""
CREATE_TOPIC: Final = Method[pb.CreateTopicRequest, pb.CreateTopicReply](
    "Admin", "CreateTopic", pb.CreateTopicReply, write=True
)
UPDATE_TOPIC: Final = Method[pb.UpdateTopicRequest, pb.TopicReply](
    "Admin", "UpdateTopic", pb.TopicReply, write=True, repeatable=False
)
"""A late copy undoes what another has changed since."""
DELETE_TOPIC: Final = Method[pb.DeleteTopicRequest, pb.TopicReply](
    "Admin", "DeleteTopic", pb.TopicReply, write=True, repeatable=False
)
DESCRIBE_TOPIC: Final = Method[pb.DescribeTopicRequest, pb.TopicReply](
    "Admin", "DescribeTopic", pb.TopicReply, write=False
)
LIST_TOPICS: Final = Method[pb.ListTopicsRequest, pb.ListTopicsReply](
    "Admin", "ListTopics", pb.ListTopicsReply, write=False
)
TRIM: Final = Method[pb.TrimRequest, pb.TrimReply]("Admin", "Trim", pb.TrimReply, write=True)
HOLD: Final = Method[pb.HoldRequest, pb.HoldReply]("Admin", "Hold", pb.HoldReply, write=True)
# Of a hold a late copy keeps too much for a while; of a release it would end a hold taken since.
RELEASE_HOLD: Final = Method[pb.HoldRequest, pb.HoldReply](
    "Admin", "Hold", pb.HoldReply, write=True, repeatable=False
)
LIST_HOLDS: Final = Method[pb.ListHoldsRequest, pb.ListHoldsReply](
    "Admin", "ListHolds", pb.ListHoldsReply, write=False
)
HOLD_ALL: Final = Method[pb.HoldAllRequest, pb.HoldAllReply](
    "Admin", "HoldAll", pb.HoldAllReply, write=True
)
RELEASE_ALL: Final = Method[pb.HoldAllRequest, pb.HoldAllReply](
    "Admin", "HoldAll", pb.HoldAllReply, write=True, repeatable=False
)
STATUS: Final = Method[pb.StatusRequest, pb.StatusReply](
    "Admin", "Status", pb.StatusReply, write=False
)
TRANSFER: Final = Method[pb.TransferLeadershipRequest, pb.TransferLeadershipReply](
    "Admin", "TransferLeadership", pb.TransferLeadershipReply, write=True, repeatable=False
)
LIFT_QUARANTINE: Final = Method[pb.LiftQuarantineRequest, pb.LiftQuarantineReply](
    "Admin", "LiftQuarantine", pb.LiftQuarantineReply, write=True, repeatable=False
)
LOG_ENTRIES: Final = "/dledger.v1.Admin/LogEntries"
