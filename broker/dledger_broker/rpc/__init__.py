"""The gRPC services of a member.

admin        The unary calls of `dledger.v1.Admin`: topics, trims and holds, status, leadership
admission    What may wait or run at once in a member, by class of call (S136, S141-S143)
calls        What all unary calls share: the group, admission, which member executes, errors
consumers    The unary calls of `dledger.v1.Delivery` about the consumers of a consumer group
delivery/    The unary calls of `dledger.v1.Delivery` about progress
head         Why the oldest segment of a log stays (D19)
native       The unary calls of `dledger.v1.Broker`: what clients ask about messages
routes       `dledger.v1.Routes` of a member
snapshots    Snapshots of this member
status       What a member says about itself in one group (D19)
streams      The streams of a member: append, fetch, entries of the log
table        Every unary call of a member, one row each, and the services
topic_proto  Topics between their replicated form and protobuf
"""
