"""A black-box chaos harness: workloads under faults, judged from a history of what clients saw.

`python -m jepsen_tests --help`; what it checks and how to use it: `docs/chaos.md`.
"""

import os

# Or a child can hang or crash in gRPC's fork handlers between fork and exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
