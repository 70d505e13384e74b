"""The simulation: the code that ships, on virtual time, networks and disks.

run          `make sim SEEDS=n [SEED=x]` and `make mutants`
clients/     Simulated clients, and what they learned
disk/        Simulated disks
faults/      Faults of a simulated world
invariants/  The invariants of a simulated world, one property per file
member/      Simulated members: the product on a simulated machine
network/     gRPC in memory: the network between simulated processes
process/     What a simulated process runs on: its event loop, threads, log lines
story/       For those who debug a seed: its story, replays of a part of it, shrinking
world/       A simulated world: time, network, plans, what is observed
"""
