"""A simulated world: time, network, plans, what is observed.

calls     Calls of clients to members over their own virtual network
clock     Virtual time: one queue of events, and the clocks that members read
liveness  The second phase: all faults off
network   The virtual network between members
observer  Gathers the facts after each step, from logs and disks, and tells the invariants
plan      Everything a seed decides before its world begins: sizes, speeds, who does what
probes    What a healthy group promises when it is left alone, or struck once
streams   Append streams between clients and members: first in, first out, until they end
world     One whole group with its clients, on one virtual clock, from one seed
"""
