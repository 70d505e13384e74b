"""The unary calls of a member but `AppendOne`, one row each, and the gRPC services made of them.

A row says: service, method, request, reply, whose bound it counts against, which member answers,
the handler, what a caller needs, and a check that bounds its work. Adding a call means adding a row
and its handler.
"""

from collections.abc import Mapping
from typing import Any, Final

from dledger.state.users.values import Action
from dledger_broker.cluster.group_expiry import GROUPS_PER_LOOK_MAX
from dledger_broker.rpc import admin, consumers, native, routes, snapshots
from dledger_broker.rpc.admission import Work
from dledger_broker.rpc.calls import AnsweredBy, Calls, Row, counted
from dledger_broker.rpc.delivery import explaining, groups, progress, schedules, timers
from dledger_broker.rpc.routes import RouteWatch
from dledger_broker.rpc.streams import Streams
from dledger_broker.security import rules, service
from dledger_broker.users import service as users
from dledger_proto.limits import PROGRESS_PER_CALL_MAX, QUEUES_PER_CALL_MAX
from dledger_proto.rpc import raw
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2, login_pb2, routes_pb2, snapshots_pb2, users_pb2

BROKER, DELIVERY, ADMIN, ROUTES = "Broker", "Delivery", "Admin", "Routes"
SNAPSHOTS, LOGIN, USERS = "Snapshots", "Login", "Users"
PUBLISH, SUBSCRIBE, UPDATE = Action.PUBLISH, Action.SUBSCRIBE, Action.UPDATE
CREATE, DELETE, GET, LIST = Action.CREATE, Action.DELETE, Action.GET, Action.LIST
QUERY, LOOKUP, ADMINISTRATION = Work.QUERY, Work.LOOKUP, Work.ADMIN
ANY, LEADER, CONTROL = AnsweredBy.ANY_MEMBER, AnsweredBy.LEADER, AnsweredBy.CONTROL_LEADER

ROWS: Final[tuple[Row[Any, Any], ...]] = (
    Row(
        BROKER, "RegisterProducer", pb.RegisterProducerRequest, pb.RegisterProducerReply,
        QUERY, LEADER, native.register_producer, rules.PRODUCERS,
    ),
    Row(
        BROKER, "QueueOffsets", pb.QueueOffsetsRequest, pb.QueueOffsetsReply,
        QUERY, ANY, native.queue_offsets,
        rules.queues(SUBSCRIBE), counted("queues", 0, QUEUES_PER_CALL_MAX),
    ),
    Row(
        BROKER, "OffsetByTime", pb.OffsetByTimeRequest, pb.OffsetByTimeReply,
        QUERY, ANY, native.offset_by_time, rules.queue(SUBSCRIBE),
    ),
    Row(
        BROKER, "CommitOffsets", pb.CommitOffsetsRequest, pb.CommitOffsetsReply,
        QUERY, LEADER, native.commit_offsets,
        rules.group_and_queues(SUBSCRIBE, "offsets", "queue"),
        counted("offsets", 0, QUEUES_PER_CALL_MAX),
    ),
    Row(
        BROKER, "ReadOffsets", pb.ReadOffsetsRequest, pb.ReadOffsetsReply,
        QUERY, ANY, native.read_offsets,
        rules.group_and_queues(SUBSCRIBE, "queues"), counted("queues", 0, QUEUES_PER_CALL_MAX),
    ),
    Row(
        BROKER, "LookupKey", pb.LookupKeyRequest, pb.LookupReply,
        LOOKUP, ANY, native.lookup_key, rules.queue(SUBSCRIBE),
    ),
    Row(
        BROKER, "LookupMessage", pb.LookupMessageRequest, pb.LookupReply,
        LOOKUP, ANY, native.lookup_message, rules.ANYONE,
    ),
    Row(
        BROKER, "LookupOffset", pb.LookupOffsetRequest, pb.LookupReply,
        LOOKUP, ANY, native.lookup_offset, rules.queue(SUBSCRIBE),
    ),
    Row(
        BROKER, "PlanReads", pb.PlanReadsRequest, pb.PlanReadsReply,
        QUERY, ANY, native.plan_reads,
        rules.queues(SUBSCRIBE, "queues", "queue"), counted("queues", 1, QUEUES_PER_CALL_MAX),
    ),
    Row(
        DELIVERY, "CreateConsumerGroup", delivery_pb2.CreateConsumerGroupRequest,
        delivery_pb2.ConsumerGroupReply, ADMINISTRATION, CONTROL, groups.create, rules.NEW_GROUP,
    ),
    Row(
        DELIVERY, "UpdateConsumerGroup", delivery_pb2.UpdateConsumerGroupRequest,
        delivery_pb2.ConsumerGroupReply, ADMINISTRATION, CONTROL, groups.update,
        rules.group(UPDATE, "name"),
    ),
    Row(
        DELIVERY, "DeleteConsumerGroup", delivery_pb2.DeleteConsumerGroupRequest,
        delivery_pb2.ConsumerGroupReply, ADMINISTRATION, CONTROL, groups.delete,
        rules.group(DELETE, "name"),
    ),
    Row(
        DELIVERY, "DescribeConsumerGroup", delivery_pb2.DescribeConsumerGroupRequest,
        delivery_pb2.DescribeConsumerGroupReply, ADMINISTRATION, LEADER, consumers.describe,
        rules.group(GET, "name"),
    ),
    Row(
        DELIVERY, "NudgeConsumers", delivery_pb2.NudgeConsumersRequest,
        delivery_pb2.NudgeConsumersReply, ADMINISTRATION, LEADER, consumers.nudge,
        rules.group(UPDATE, "name"),
    ),
    Row(
        DELIVERY, "CheckGrants", delivery_pb2.CheckGrantsRequest, delivery_pb2.CheckGrantsReply,
        QUERY, LEADER, consumers.check_grants,
        rules.MEMBERS, counted("queues", 1, QUEUES_PER_CALL_MAX),
    ),
    Row(
        DELIVERY, "CheckUnusedGroups", delivery_pb2.CheckUnusedGroupsRequest,
        delivery_pb2.CheckUnusedGroupsReply, QUERY, LEADER, consumers.check_unused_groups,
        rules.MEMBERS,
        counted("group_ids", 1, GROUPS_PER_LOOK_MAX),
    ),
    Row(
        ADMIN, "CreateTopic", pb.CreateTopicRequest, pb.CreateTopicReply,
        ADMINISTRATION, CONTROL, admin.create_topic, rules.NEW_TOPIC,
    ),
    Row(
        ADMIN, "UpdateTopic", pb.UpdateTopicRequest, pb.TopicReply,
        ADMINISTRATION, CONTROL, admin.update_topic, rules.topic(UPDATE),
    ),
    Row(
        ADMIN, "DeleteTopic", pb.DeleteTopicRequest, pb.TopicReply,
        ADMINISTRATION, CONTROL, admin.delete_topic, rules.topic(DELETE),
    ),
    Row(
        ADMIN, "DescribeTopic", pb.DescribeTopicRequest, pb.TopicReply,
        ADMINISTRATION, ANY, admin.describe_topic, rules.topic(GET),
    ),
    Row(
        ADMIN, "ListTopics", pb.ListTopicsRequest, pb.ListTopicsReply,
        ADMINISTRATION, ANY, admin.list_topics, rules.ANYONE,
    ),
    Row(
        ADMIN, "PullTopics", pb.PullTopicsRequest, pb.PullTopicsReply,
        ADMINISTRATION, LEADER, admin.pull_topics, rules.MEMBERS, admin.follows_control_group,
    ),
    Row(
        ADMIN, "Trim", pb.TrimRequest, pb.TrimReply,
        ADMINISTRATION, LEADER, admin.trim, rules.queue(DELETE),
    ),
    Row(
        ADMIN, "Hold", pb.HoldRequest, pb.HoldReply,
        ADMINISTRATION, LEADER, admin.hold, rules.queue(SUBSCRIBE),
    ),
    Row(
        ADMIN, "HoldAll", pb.HoldAllRequest, pb.HoldAllReply,
        ADMINISTRATION, LEADER, admin.hold_all,
        rules.queues(SUBSCRIBE, "queues", "queue"), counted("queues", 1, QUEUES_PER_CALL_MAX),
    ),
    Row(
        ADMIN, "ListHolds", pb.ListHoldsRequest, pb.ListHoldsReply,
        ADMINISTRATION, ANY, admin.list_holds, rules.topic(LIST, "topic"),
    ),
    Row(
        ADMIN, "Status", pb.StatusRequest, pb.StatusReply,
        None, ANY, admin.group_status, rules.cluster(GET), while_draining=True,
    ),
    Row(
        ADMIN, "Scrub", pb.ScrubRequest, pb.ScrubReply,
        ADMINISTRATION, ANY, admin.scrub, rules.cluster(UPDATE),
    ),
    Row(
        ADMIN, "TransferLeadership", pb.TransferLeadershipRequest, pb.TransferLeadershipReply,
        ADMINISTRATION, LEADER, admin.transfer_leadership,
        rules.cluster(UPDATE), admin.names_a_member,
    ),
    Row(
        ADMIN, "LiftQuarantine", pb.LiftQuarantineRequest, pb.LiftQuarantineReply,
        ADMINISTRATION, ANY, admin.lift_quarantine, rules.cluster(UPDATE),
    ),
    Row(
        SNAPSHOTS, "Create", snapshots_pb2.CreateSnapshotRequest,
        snapshots_pb2.CreateSnapshotReply, ADMINISTRATION, ANY, snapshots.create,
        rules.cluster(CREATE),
    ),
    Row(
        SNAPSHOTS, "List", snapshots_pb2.ListSnapshotsRequest, snapshots_pb2.ListSnapshotsReply,
        ADMINISTRATION, ANY, snapshots.list_all, rules.cluster(LIST),
    ),
    Row(
        SNAPSHOTS, "Delete", snapshots_pb2.DeleteSnapshotRequest,
        snapshots_pb2.DeleteSnapshotReply, ADMINISTRATION, ANY, snapshots.delete,
        rules.cluster(DELETE),
    ),
    Row(
        DELIVERY, "ClaimQueues", delivery_pb2.ClaimQueuesRequest, delivery_pb2.ClaimQueuesReply,
        QUERY, LEADER, progress.claim_queues,
        rules.group_and_queues(SUBSCRIBE, "queues", "queue"),
        counted("queues", 1, QUEUES_PER_CALL_MAX),
    ),
    Row(
        DELIVERY, "ReleaseQueues",
        delivery_pb2.ReleaseQueuesRequest, delivery_pb2.ReleaseQueuesReply,
        QUERY, LEADER, progress.release_queues,
        rules.group_and_queues(SUBSCRIBE, "queues", "queue"),
        counted("queues", 1, QUEUES_PER_CALL_MAX),
    ),
    Row(
        DELIVERY, "FailRecords", delivery_pb2.FailRecordsRequest, delivery_pb2.FailRecordsReply,
        QUERY, LEADER, progress.fail_records,
        rules.group_and_queues(SUBSCRIBE, "records", "queue"),
        counted("records", 1, QUEUES_PER_CALL_MAX),
    ),
    Row(
        DELIVERY, "ListDeadLetters",
        delivery_pb2.ListDeadLettersRequest, delivery_pb2.ListDeadLettersReply,
        QUERY, ANY, progress.list_dead_letters, rules.group(SUBSCRIBE),
    ),
    Row(
        DELIVERY, "SettleDeadLetters",
        delivery_pb2.SettleDeadLettersRequest, delivery_pb2.SettleDeadLettersReply,
        ADMINISTRATION, LEADER, progress.settle_dead_letters, rules.group(UPDATE),
        counted("offsets", 1, QUEUES_PER_CALL_MAX),
    ),
    Row(
        DELIVERY, "ReadProgress", delivery_pb2.ReadProgressRequest, delivery_pb2.ReadProgressReply,
        QUERY, ANY, progress.read_progress,
        rules.group_and_queues(GET, "queues"), counted("queues", 1, PROGRESS_PER_CALL_MAX),
    ),
    Row(
        DELIVERY, "ResumeGroup", delivery_pb2.ResumeGroupRequest, delivery_pb2.ResumeGroupReply,
        ADMINISTRATION, LEADER, progress.resume_group, rules.group(UPDATE),
    ),
    Row(
        DELIVERY, "ExplainRecord",
        delivery_pb2.ExplainRecordRequest, delivery_pb2.ExplainRecordReply,
        LOOKUP, ANY, explaining.explain_record, rules.OF_LOG,
    ),
    Row(
        DELIVERY, "RecallTimer", delivery_pb2.RecallTimerRequest, delivery_pb2.RecallTimerReply,
        QUERY, LEADER, timers.recall, rules.ANYONE, asks_caller=True,
    ),
    Row(
        DELIVERY, "ListTimers", delivery_pb2.ListTimersRequest, delivery_pb2.ListTimersReply,
        QUERY, ANY, timers.list_timers, rules.topic(LIST, "topic"),
    ),
    Row(
        DELIVERY, "SetSchedule", delivery_pb2.SetScheduleRequest, delivery_pb2.SetScheduleReply,
        ADMINISTRATION, LEADER, schedules.set_schedule, rules.SCHEDULED,
    ),
    Row(
        DELIVERY, "DeleteSchedule",
        delivery_pb2.DeleteScheduleRequest, delivery_pb2.DeleteScheduleReply,
        ADMINISTRATION, LEADER, schedules.delete_schedule, rules.topic(PUBLISH, "topic"),
    ),
    Row(
        DELIVERY, "ListSchedules",
        delivery_pb2.ListSchedulesRequest, delivery_pb2.ListSchedulesReply,
        QUERY, ANY, schedules.list_schedules, rules.topic(LIST, "topic"),
    ),
    Row(
        LOGIN, "Begin", login_pb2.BeginLoginRequest, login_pb2.BeginLoginReply,
        QUERY, ANY, service.begin, rules.BEFORE_LOGIN,
    ),
    Row(
        LOGIN, "Finish", login_pb2.FinishLoginRequest, login_pb2.FinishLoginReply,
        QUERY, ANY, service.finish, rules.BEFORE_LOGIN,
    ),
    Row(
        USERS, "Put", users_pb2.PutUserRequest, users_pb2.UserReply,
        ADMINISTRATION, CONTROL, users.put, rules.ADMINISTRATORS,
    ),
    Row(
        USERS, "Delete", users_pb2.DeleteUserRequest, users_pb2.UserReply,
        ADMINISTRATION, CONTROL, users.delete, rules.ADMINISTRATORS,
    ),
    Row(
        USERS, "Describe", users_pb2.DescribeUserRequest, users_pb2.UserReply,
        ADMINISTRATION, CONTROL, users.describe, rules.ADMINISTRATORS,
    ),
    Row(
        USERS, "List", users_pb2.ListUsersRequest, users_pb2.ListUsersReply,
        ADMINISTRATION, CONTROL, users.list_all, rules.ADMINISTRATORS,
    ),
    Row(
        USERS, "Pull", users_pb2.PullUsersRequest, users_pb2.PullUsersReply,
        ADMINISTRATION, LEADER, users.pull, rules.MEMBERS, users.follows_control_group,
    ),
    Row(
        USERS, "Follow", users_pb2.FollowUsersRequest, users_pb2.FollowUsersReply,
        ADMINISTRATION, ANY, users.follow, rules.MEMBERS, users.decides,
    ),
    Row(
        ROUTES, "Get", routes_pb2.RoutesRequest, routes_pb2.RoutesReply,
        QUERY, ANY, routes.get_routes, rules.ANYONE, while_draining=True,
    ),
)  # fmt: skip


SERVICES: Final = tuple(
    f"dledger.v1.{each}" for each in (BROKER, DELIVERY, ADMIN, SNAPSHOTS, LOGIN, USERS, ROUTES)
)
"""As gRPC names them."""


STREAMS: Final[Mapping[str, rules.Rule]] = {
    "Broker/Append": rules.APPENDED,
    "Broker/AppendOne": rules.APPENDED,
    "Broker/Fetch": rules.FETCHED,
    "Delivery/Session": rules.JOINED,
    "Admin/LogEntries": rules.OF_LOG,
    "Routes/Watch": rules.ANYONE,
}
"""What the methods need that have no row; they ask the gate themselves."""


def services(calls: Calls, streams: Streams, watch: RouteWatch) -> tuple[raw.RawService, ...]:
    """Return what a member's gRPC server serves; what is called most comes first."""
    by_hand: Mapping[str, Mapping[str, raw.RawMethod]] = {
        BROKER: {
            "Append": raw.StreamMethod(streams.append),
            "AppendOne": raw.UnaryMethod(streams.append_one),
            "Fetch": raw.ReadMethod(streams.fetch),
        },
        DELIVERY: {"Session": raw.StreamMethod(streams.session)},
        ADMIN: {"LogEntries": raw.ReadMethod(streams.log_entries)},
        SNAPSHOTS: {},
        LOGIN: {},
        USERS: {},
        ROUTES: {"Watch": raw.ReadMethod(watch.watch)},
    }
    return tuple(
        raw.raw_handlers(
            f"dledger.v1.{service}",
            {
                **methods,
                **{row.name: calls.method(row) for row in ROWS if row.service == service},
            },
        )
        for service, methods in by_hand.items()
    )
