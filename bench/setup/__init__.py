"""What benchmarks run against: clusters, floors, peers, load.

bare       a floor: replication with nothing in it
blocking   a synchronous producer in a process of its own, one message after the other
callers    callers that each send one message after the other, counted together
cluster    real clusters as processes, started for one measurement
consuming  a consumer of a group in a process of its own
cuttable   a cluster behind proxies, so that one member can be cut off
echo       a floor: a bare gRPC server in a process of its own
floors     what this machine gives at best: disk, loopback, gRPC
native     the native wire without the client library
peer       the speed prototype: three members and their producer
users      load as users write it, by `dledger_client`
writer     a floor: one process that writes and syncs a file of its own
"""
