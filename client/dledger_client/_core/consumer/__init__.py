"""A consumer without I/O.

actions  What a consumer's core asks its driver to do: a closed list
buffer   What a consumer has fetched and not handed out yet
core     A whole consumer without I/O: positions, streams to members, arriving frames
state    What a consumer's core knows of one queue and of one stream
"""
