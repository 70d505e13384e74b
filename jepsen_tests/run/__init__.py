"""One run: cluster, workload, faults, end, verdict.

final       After the faults: heal, read everything back
members     What the members of the tested group say of themselves, and whether that is well
observer    Looks at members for the history
patience    Repeats calls that fail while a cluster recovers
recorder    Writes down what clients and the nemesis do while they do it
phases      One run: a cluster, a workload, faults, the end; then the history is complete
schedule    When which fault begins and ends: drawn from the seed before anything starts
standstill  Members that apply nothing while others do: found by comparing looks
verdict     The verdict on a history: every checker, a table, an exit code, a page
"""
