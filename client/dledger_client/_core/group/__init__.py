"""A consumer in a consumer group, without I/O.

actions   What the core of a group's consumer asks its driver to do: a closed list
calls     Calls to home groups: which are under way, and when a home group is asked again
claims    Claims of granted queues in their home groups: taking, renewing, releasing
commits   Commits of what is done: every so often, by hand, before a queue is given back
core      A consumer in a group: session, claims, commits, failures
dispatch  Which record a listener gets next, and what its outcome means
failures  Failures of records, as they are told to home groups
flow      How much of a queue a consumer has in hand before it takes no more
progress  How far a consumer is in one queue: the floor, and what is done above it
queues    A queue that the consumer was granted, from the grant until it is given back
session   The session of one consumer with the coordinator of its group
"""
