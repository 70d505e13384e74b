"""What benchmarks run against: clusters, floors, peers, load.

bare      Replication with nothing in it
blocking  A synchronous producer in a process of its own, one message after the other
callers   Callers who each send one thing after the other, counted together
cluster   Real clusters as processes, for as long as a measurement needs them
cuttable  A cluster whose members talk through proxies, so that one of them can be cut off
echo      A bare gRPC server in a process of its own: what loopback, HTTP/2 and grpc.aio cost
floors    What this machine gives at best, measured in the same run as our own figures
native    The native wire without the client library: what a member can do, whoever asks
peer      The speed prototype, run as it was measured: three members and its producer
users     Load as users write it, through `dledger_client`
writer    One plain writer: pwrite and fdatasync, again and again, into a file of its own
"""
