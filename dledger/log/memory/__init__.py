"""The log in memory, as the loop's thread sees it.

chain      the end of a log, and the rule which entry can be the next one
log_state  what the log holds: appending, cutting, trimming, and how much of it is on disk
samples    sparse places of entries and starts of terms, for finding entries by index
segment    one segment file as the log knows it, and the index file of a sealed one
tail       the newest entries as bytes: all that is not synced, and a bounded cache
"""
