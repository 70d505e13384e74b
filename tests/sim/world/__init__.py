"""A simulated world: time, what is observed, plans, phases.

clock        Virtual time: one queue of events, and the clocks that members read
contents     The end of a world: what every member holds, compared with the truth
group        One broker group of a world: its members, its facts, its invariants
liveness     The second phase, without faults: the cluster must converge and serve
name_server  A simulated name server: the product's own, on a host of its own
observer     Gathers the facts after each step, and tells the invariants
plan         Everything a seed decides before its world begins
probes       What a healthy group promises without faults, or after one fault
world        A whole cluster with its clients, on one virtual clock, from one seed
"""
