"""What happened in a run: one JSON line for each event.

events        the format, and the types: header, row, operation, history
faults        when each fault was in force, and when phases began
history_file  writes and reads the file, and pairs rows to operations
row_schema    what each row may hold; checked before any checker looks
"""
