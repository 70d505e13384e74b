"""Progress of consumer groups in queues: claims, commits, failures (D21, D22, D25).

claims        ClaimQueues and ReleaseQueues: who may go on in a queue, and where it begins
commits       CommitOffsets: what is done in a queue, and resets
dead_letters  SettleDeadLetters: they are sent to their group again, or dropped
failures      FailRecords: a record that failed is tried again, or is dead
fence         Who is refused: by epoch, by resets, by a lease. Pure
group         A consumer group as progress sees it: its id, its settings, its queues here
lag           How far everybody is behind, for metrics
ranges        Done ranges above a floor: merged, counted, looked up. Pure
row           What a consumer group has done in one queue: the values and the bytes of the row
start         BeginQueues, and where a group begins in a queue that it has no floor of
table         The table of progress: reading and writing rows
wave          A wave of failures pauses a consumer group; ResumeGroup ends the pause
"""
