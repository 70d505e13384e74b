"""Runs a module as `__main__` in a process that gets SIGTERM when its parent ends.

`dledger up` starts `python -m dledger_broker.local.child PARENT_PID MODULE ARGUMENTS...`, so that
no process stays when `dledger up` is killed. The child ties itself to its parent. To do it between
fork and exec would run Python (and gRPC's fork handlers) there.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the module."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)  # the parent ended before the call above
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
