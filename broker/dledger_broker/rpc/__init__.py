"""The gRPC services of a member.

admin        `dledger.v1.Admin`
admission    What may wait or run at once in a member, by class of call (S136, S141-S143)
calls        What every unary call has in common
native       `dledger.v1.Broker`: the native API for messages
routes       `dledger.v1.Routes` of a member
status       What a member says about itself in one group (D19)
topic_proto  Topics between their replicated form and protobuf
"""
