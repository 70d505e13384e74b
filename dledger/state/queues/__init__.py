"""Consume queues: appending to them, trimming them (S51, D6).

append      Appending committed batches to their queues: which are void, which are repeats
carry       CarryForward: what old segments still hold is copied to the end of the log
compact     Compact: records go that a newer one of the same key supersedes
copies      Where old batches lie that were carried forward
expire      ExpireRecords: the records go that their topic's retention lets go
garbage     Ranges of rows that nobody sees any more, deleted a few with every entry
holds       Who keeps which part of a queue until when, and the commands Hold and ReleaseHold
references  References to parts of older batches: origins, and pins that keep the log (D7)
table       The queue tables: which offsets a queue has, and where its batches lie in the log
trim        Trim: raising a queue's minimum, up to its holds
write_rule  Whether a queue takes a batch: one rule for apply and for the member that proposes
"""
