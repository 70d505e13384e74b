"""Benchmarks: every figure beside its floor or its peer, measured in the same run.

figures   A figure: what was measured, beside what it is compared with
plan      How long and how often everything is measured
bulk/     Benchmarks of decoding, exports and Spark
cluster/  Benchmarks of failover, restart, idling and the state
log/      Benchmarks of sending and reading
setup/    What benchmarks run against: clusters, floors, peers, load
"""

import os

# Or a child can hang in gRPC's fork handlers between fork and exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
