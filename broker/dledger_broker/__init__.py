"""A member of a broker group: services, use cases, admission, long polling.

append/      Batches on their way into a group
carrying/    The leader carries old records forward, so that one does not keep a whole log
cli/         The `dledger` command: run a cluster, use it, look into it
cluster/     The rest of the cluster: other groups, name servers, topics
compacting/  The leader compacts topics: of each key the last record stays
config/      The configuration of a member
delivery/    Delivery: who consumes what, at the leader that coordinates it
demo/        The demo on real input: departures, faults, proof, report
flight/      The flight recorder: the last minutes of a member, for those who ask why it ended
group/       One group as the services see it, and what its leader does by itself
metrics/     What a member counts and shows to those who watch it
local/       A whole cluster on this machine
process/     A member as a process: its groups, its end, logs, health
read/        Reading: fetch streams, lookups, plans, the log for comparison
refill/      Log and state for a peer that replication cannot fill, and from one
repair/      Damage on the own disk is looked for, and mended by peers
rpc/         The gRPC services of a member
security/    Who may do what: certificates
snapshots/   Snapshots of a running member, beside its data
timers/      What the leader of a group puts into queues when its time has come
usecases/    What callers can ask of a member, whatever the API
users/       Users of the whole cluster: the control group decides, the others take over
"""

from dledger_proto import __version__

__all__ = ["__version__"]
