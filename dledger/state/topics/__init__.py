"""Topics: what exists, its layout over groups, and who decides (D1, D14).

commands  The commands that change topics, and their verdicts
layout    What a topic may look like: its layout over groups, its numbers of queues
sweep     Deleting rows of deleted topics that lie all over a table, some with every entry
table     The topic table: every topic that a group knows, its row, its place in memory
"""
