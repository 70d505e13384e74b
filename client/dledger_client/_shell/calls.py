"""Every unary method that this package calls: one table."""

from typing import Final

from dledger_client._shell.wire import Method
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2, routes_pb2, users_pb2

GET_ROUTES: Final = Method(
    "Routes", routes_pb2.RoutesRequest, routes_pb2.RoutesReply, write=False, name="Get"
)
WATCH_ROUTES: Final = "/dledger.v1.Routes/Watch"

REGISTER: Final = Method(
    "Broker", pb.RegisterProducerRequest, pb.RegisterProducerReply, write=True, repeatable=False
)
QUEUE_OFFSETS: Final = Method("Broker", pb.QueueOffsetsRequest, pb.QueueOffsetsReply, write=False)
OFFSET_BY_TIME: Final = Method("Broker", pb.OffsetByTimeRequest, pb.OffsetByTimeReply, write=False)
COMMIT_OFFSETS: Final = Method("Broker", pb.CommitOffsetsRequest, pb.CommitOffsetsReply, write=True)
RESET_OFFSETS: Final = Method(
    "Broker", pb.CommitOffsetsRequest, pb.CommitOffsetsReply, write=True, repeatable=False
)
"""With `reset`: a late copy undoes what was committed since."""
READ_OFFSETS: Final = Method("Broker", pb.ReadOffsetsRequest, pb.ReadOffsetsReply, write=False)
LOOKUP_KEY: Final = Method("Broker", pb.LookupKeyRequest, pb.LookupReply, write=False)
LOOKUP_MESSAGE: Final = Method("Broker", pb.LookupMessageRequest, pb.LookupReply, write=False)
LOOKUP_OFFSET: Final = Method("Broker", pb.LookupOffsetRequest, pb.LookupReply, write=False)
PLAN_READS: Final = Method("Broker", pb.PlanReadsRequest, pb.PlanReadsReply, write=False)

READ_PROGRESS: Final = Method(
    "Delivery", delivery_pb2.ReadProgressRequest, delivery_pb2.ReadProgressReply, write=False
)
NUDGE_CONSUMERS: Final = Method(
    "Delivery", delivery_pb2.NudgeConsumersRequest, delivery_pb2.NudgeConsumersReply, write=False
)
DESCRIBE_GROUP: Final = Method(
    "Delivery",
    delivery_pb2.DescribeConsumerGroupRequest,
    delivery_pb2.DescribeConsumerGroupReply,
    write=False,
)
RESUME_GROUP: Final = Method(
    "Delivery",
    delivery_pb2.ResumeGroupRequest,
    delivery_pb2.ResumeGroupReply,
    write=True,
    repeatable=False,
)
"""A late copy ends a pause that began since."""
LIST_DEAD_LETTERS: Final = Method(
    "Delivery",
    delivery_pb2.ListDeadLettersRequest,
    delivery_pb2.ListDeadLettersReply,
    write=False,
)
SETTLE_DEAD_LETTERS: Final = Method(
    "Delivery",
    delivery_pb2.SettleDeadLettersRequest,
    delivery_pb2.SettleDeadLettersReply,
    write=True,
)
"""What is settled is not settled again."""
EXPLAIN_RECORD: Final = Method(
    "Delivery", delivery_pb2.ExplainRecordRequest, delivery_pb2.ExplainRecordReply, write=False
)
LOOK_BEFORE_CREATION: Final = Method(
    "Admin", pb.CreateTopicRequest, pb.CreateTopicReply, write=False
)
"""Without a `known_index`: creates nothing."""
CREATE_TOPIC: Final = Method("Admin", pb.CreateTopicRequest, pb.CreateTopicReply, write=True)
UPDATE_TOPIC: Final = Method(
    "Admin", pb.UpdateTopicRequest, pb.TopicReply, write=True, repeatable=False
)
"""A late copy undoes what another has changed since."""
DELETE_TOPIC: Final = Method(
    "Admin", pb.DeleteTopicRequest, pb.TopicReply, write=True, repeatable=False
)
DESCRIBE_TOPIC: Final = Method("Admin", pb.DescribeTopicRequest, pb.TopicReply, write=False)
LIST_TOPICS: Final = Method("Admin", pb.ListTopicsRequest, pb.ListTopicsReply, write=False)
TRIM: Final = Method("Admin", pb.TrimRequest, pb.TrimReply, write=True)
HOLD: Final = Method("Admin", pb.HoldRequest, pb.HoldReply, write=True)
# A late copy of a hold keeps too much for a while. One of a release would end a newer hold.
RELEASE_HOLD: Final = Method("Admin", pb.HoldRequest, pb.HoldReply, write=True, repeatable=False)
LIST_HOLDS: Final = Method("Admin", pb.ListHoldsRequest, pb.ListHoldsReply, write=False)
HOLD_ALL: Final = Method("Admin", pb.HoldAllRequest, pb.HoldAllReply, write=True)
RELEASE_ALL: Final = Method(
    "Admin", pb.HoldAllRequest, pb.HoldAllReply, write=True, repeatable=False
)
STATUS: Final = Method("Admin", pb.StatusRequest, pb.StatusReply, write=False)
TRANSFER: Final = Method(
    "Admin", pb.TransferLeadershipRequest, pb.TransferLeadershipReply, write=True, repeatable=False
)
LIFT_QUARANTINE: Final = Method(
    "Admin", pb.LiftQuarantineRequest, pb.LiftQuarantineReply, write=True, repeatable=False
)
LOG_ENTRIES: Final = "/dledger.v1.Admin/LogEntries"

SESSION: Final = "/dledger.v1.Delivery/Session"
LOOK_FOR_GROUP: Final = Method(
    "Delivery",
    delivery_pb2.CreateConsumerGroupRequest,
    delivery_pb2.ConsumerGroupReply,
    write=False,
    name="CreateConsumerGroup",
)
"""Without a `known_index`: creates nothing."""
CREATE_GROUP: Final = Method(
    "Delivery",
    delivery_pb2.CreateConsumerGroupRequest,
    delivery_pb2.ConsumerGroupReply,
    write=True,
    name="CreateConsumerGroup",
)
UPDATE_GROUP: Final = Method(
    "Delivery",
    delivery_pb2.UpdateConsumerGroupRequest,
    delivery_pb2.ConsumerGroupReply,
    write=True,
    repeatable=False,
    name="UpdateConsumerGroup",
)
"""A late copy undoes what another has changed since."""
DELETE_GROUP: Final = Method(
    "Delivery",
    delivery_pb2.DeleteConsumerGroupRequest,
    delivery_pb2.ConsumerGroupReply,
    write=True,
    repeatable=False,
    name="DeleteConsumerGroup",
)
RECALL_TIMER: Final = Method(
    "Delivery",
    delivery_pb2.RecallTimerRequest,
    delivery_pb2.RecallTimerReply,
    write=True,
    repeatable=False,
)
"""A repeat of what took effect would find no timer."""
LIST_TIMERS: Final = Method(
    "Delivery", delivery_pb2.ListTimersRequest, delivery_pb2.ListTimersReply, write=False
)
SET_SCHEDULE: Final = Method(
    "Delivery",
    delivery_pb2.SetScheduleRequest,
    delivery_pb2.SetScheduleReply,
    write=True,
    repeatable=False,
)
"""A late copy undoes what another has changed since."""
DELETE_SCHEDULE: Final = Method(
    "Delivery",
    delivery_pb2.DeleteScheduleRequest,
    delivery_pb2.DeleteScheduleReply,
    write=True,
    repeatable=False,
)
"""A late copy deletes what another has set since."""
LIST_SCHEDULES: Final = Method(
    "Delivery", delivery_pb2.ListSchedulesRequest, delivery_pb2.ListSchedulesReply, write=False
)
CLAIM_QUEUES: Final = Method(
    "Delivery", delivery_pb2.ClaimQueuesRequest, delivery_pb2.ClaimQueuesReply, write=True
)
RELEASE_QUEUES: Final = Method(
    "Delivery", delivery_pb2.ReleaseQueuesRequest, delivery_pb2.ReleaseQueuesReply, write=True
)
FAIL_RECORDS: Final = Method(
    "Delivery", delivery_pb2.FailRecordsRequest, delivery_pb2.FailRecordsReply, write=True
)
"""It names the attempts that the consumer knows, so a repeat counts once."""
PUT_USER: Final = Method(
    "Users", users_pb2.PutUserRequest, users_pb2.UserReply, write=True, name="Put"
)
"""Naming the list that it is a change of: a late copy undoes nothing."""
CHANGE_USER: Final = Method(
    "Users", users_pb2.PutUserRequest, users_pb2.UserReply, write=True, name="Put", repeatable=False
)
DELETE_USER: Final = Method(
    "Users",
    users_pb2.DeleteUserRequest,
    users_pb2.UserReply,
    write=True,
    name="Delete",
    repeatable=False,
)
DESCRIBE_USER: Final = Method(
    "Users", users_pb2.DescribeUserRequest, users_pb2.UserReply, write=False, name="Describe"
)
LIST_USERS: Final = Method(
    "Users", users_pb2.ListUsersRequest, users_pb2.ListUsersReply, write=False, name="List"
)
