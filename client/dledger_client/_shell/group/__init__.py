"""Consumers in groups: streams, calls and listeners around `_core/group/`.

admin                 How far a consumer group is in each queue; resets, clones, pauses
administration        Administration of consumer groups, blocking; generated
administration_async  Administration of consumer groups: what every admin has
broadcast             A consumer that gets everything: all queues, offsets in a local file
calling               How a listener is called: as a coroutine, or as a function in a thread
dead_letters          Dead letters: found by filters, sent again, dropped
describing            What the coordinator of a consumer group tells of it
explaining            What became of a record: the pages of its story, put together
membership            One consumer's session, claims, commits and failures on the wire
objects               Consumer groups as objects of the cluster: create, change, delete, find, list
polling               A subscription of a consumer that polls: what it has read, what it commits
push                  A push consumer's engine: fetched records on their way through the listener
"""
