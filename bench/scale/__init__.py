"""How cost grows: the same work at more queues, producers, consumers, groups, and larger bodies.

axes       the points along each axis; what `python -m bench scale` runs
queues     appends, a lone send, reading, idling, memory and a start by the number of queues
producers  lone sends by the number of producers
consumers  reading one queue by the number of its readers
groups     appends and idling by the number of groups in three processes
bodies     appends, a lone send and reading by the size of a body
load       batches for many queues, and what they cost the members
curves     draws a picture of each axis from the JSON lines of a run
"""
