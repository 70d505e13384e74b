"""The leader compacts queues: of each key the last record stays (docs/decisions/compaction.md).

compacting  The loop: which queues are worth a pass, what each of its commands brings
superseded  Which records of a batch stay
"""
