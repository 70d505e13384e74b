"""Benchmarks: every figure beside its floor or its peer, measured in the same run."""

import os

# Or a child can hang in gRPC's fork handlers between fork and exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
