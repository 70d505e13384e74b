"""The name server: where the members of every group are, which member leads, which topics exist.

changes   What changed since when: the base of deltas for watchers. Pure
chunks    Cuts registrations and tables of routes into messages of about 1 MiB
groups    One broker group as its members describe it: members, leader, term. Pure
intake    What a registration may look like. Pure
logs      Log lines of a process: structlog to standard error, for people or as JSON
metrics   What a name server tells those who watch it. Pure
registry  The name server's table: members with leases, leaders, topics, and what changed. Pure
service   The name server's gRPC services: registration streams in, routes out, pushed on change
silent    Members that belong to a group and are not listed. Pure
topics    The topics of the cluster as the groups tell them. Pure
"""

from dledger_proto import __version__

__all__ = ["__version__"]
