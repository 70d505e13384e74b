"""The `dledger` command: run a cluster, use it, look into it.

Owns the command line: one module per group of commands, `output` for what they print, `connect`
for how they reach a cluster. Modules are imported when their command runs, so that `--help` and
`dledger broker` do not pay for what they do not use.
"""

from dledger_broker.cli.app import main

__all__ = ["main"]
