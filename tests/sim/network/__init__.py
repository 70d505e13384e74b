"""The network of a simulated world: connections in memory, with gRPC on them or without.

calls/    gRPC's channels, servers and calls
dialing   An attempt to connect
machines  Hosts with a process each, for tests
network   The hosts, the paths between them, and all faults
options   What the options of channels and servers say
path      One direction between two hosts, and its weather
plain     Plain TCP connections, for links between members
wire      Connections, and the streams of calls on them

grpc.aio has two layers. The upper one, in Python, gives applications their calls; the simulation
uses it as it is. The lower one is gRPC's core with its HTTP/2 and its sockets. This package takes
the place of the lower one. `tests/contract/test_grpc_in_memory.py` compares both.
"""
