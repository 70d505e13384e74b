"""The demo on real input: departures, faults, proof, report.

flights  The demo's input: every departure from New York's airports in 2013, in order of time
gaps     What the acknowledgements say of faults and of quiet times. Pure
proof    Reading everything back from every member: nothing lost, repeated or reordered
report   The demo's outcome: JSON, a table for the terminal, a page
run      The demo: real rows through a real group while its members are killed, paused
"""
