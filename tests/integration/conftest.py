"""Before anything opens a gRPC channel: its fork handlers hang children made between fork and exec.

These tests start processes while channels are open; the children replace themselves at once and
need nothing of gRPC.
"""

import os

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"
