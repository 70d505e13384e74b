"""gRPC's channels, servers and calls in memory.

call      One call at its client
channel   A channel: its connection, its states, its back-off
handling  One call at its server: its context, its handler
patching  The functions that stand in for those of `grpc.aio`
server    A server: its ports, its handlers, its end
"""
