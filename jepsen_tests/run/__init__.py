"""One run, from starting the cluster to the verdict.

final       the final phase: reads everything back in every way
members     what the members say of themselves, and whether the group is well
observer    asks members for their status and resources, for the history
patience    repeats calls that fail while a cluster recovers
phases      the phases of a run: setup, faults, heal, final
recorder    writes down what clients and the nemesis do while they do it
schedule    draws from the seed when each fault begins and ends
standstill  finds members that apply nothing while others do
verdict     judges a history: table, exit code, results, page
"""
