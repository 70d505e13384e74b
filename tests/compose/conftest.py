"""Before anything opens a gRPC channel: its fork handlers hang children made between fork and exec.

These tests start commands while channels are open; they replace themselves at once.
"""

import os

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"
