"""Delivery: who consumes what, at the leader that coordinates it (D20, D24).

coordinator     The consumer groups that one broker group coordinates, while this member leads it
grants          Only what the coordinator granted raises the fence of a queue
group_proto     What consumers and people are told of a consumer group, as protobuf
joining         From what a consumer says when it joins to the command for the log
led_group       One consumer group: it ends sessions, and deals out queues
planning        Who should have which queue: from rows to the Assign to propose
session_stream  One session of a consumer: the stream between it and its coordinator
sessions        Who is connected, who is silent, whose session is over
strategies/     How queues are dealt out (S90-S96)
subscribed      What a consumer group reads: from subscriptions and topics to queues
"""
