"""The `dledger` command: run a cluster, use it, look into it.

Owns the command line: one module per group of commands, `output` for what they print, `connect`
for how they reach a cluster. Modules are imported when their command runs, so that `--help` and
`dledger broker` do not pay for what they do not use.

The command needs packages that a client does not need: those of the extra `broker`. Without them
the command prints one line that says so and ends with exit code 1. So nothing here may import these
packages at the top.

    app         The command line as a whole: which commands there are, and how any of them ends
    asking      Commands that destroy something do it only when a person agrees
    client      A client object for a command: an `Admin` with the command's options
    connect     How commands reach a cluster: routes from a name server, then calls to members
    output      What commands print, and how they end: tables for people, JSON for programs
    tables      Tables for people: one row per line, or rows side by side where a table is too wide
    values      How people write and read times, durations and sizes in bytes
    backup/     Commands that keep a copy of a group's data, and make a new cluster of it
    cluster/    Commands about a running cluster
    live/       Commands that show a running cluster again and again
    members/    Commands about running members, one by one
    exports/    `dledger export`
    messages/   Commands that send and read messages
    offline/    Commands about a stopped member's data folder
    processes/  Commands that run processes: members, name servers, a local cluster, the demo
    security/   Commands about who may do what
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code. Prints one line for every expected failure."""
    try:
        from dledger_broker.cli.app import run

        return run(arguments)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package.startswith("dledger") or package in sys.stdlib_module_names:
            raise  # a bug in dledger
        sys.stderr.write(
            f"error: the dledger command needs {package}, which is not installed; "
            "install dledger with the extra broker, from a checkout or a wheel\n"
        )
        return 1
