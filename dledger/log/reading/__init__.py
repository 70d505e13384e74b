"""Reading old log bytes from any thread, while the loop appends, cuts and trims.

file_pool    open files, shared by threads
lookup       finding entries by index, and reading them for apply
part         the committed part of a segment, for a scrub
span_reader  runs of bytes by position
walk         entry frames, one after the other
"""
