"""The flight recorder: the last minutes of a member, for those who ask why it ended.

dumping      Writing the record down: at the end, after a failure, on demand
record_file  The file of a flight record: lines with checksums, read as far as they are whole
recorder     The last events of a member, in memory
"""
