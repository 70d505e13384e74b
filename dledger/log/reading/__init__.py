"""Reading old log bytes from any thread, while the loop appends, cuts and trims.

file_pool    Open files for reading old log bytes, shared by threads
lookup       Finding entries by index
span_reader  Reading runs of log bytes from any thread, while the loop appends, cuts and trims
"""
