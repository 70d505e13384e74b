"""Topics: what exists, its layout over groups, and who decides (D1, D14).

commands  The commands that change topics, and their verdicts
layout    What a topic may look like: its layout over groups, its numbers of queues
table     The topic table: every topic that a group knows, its row, its place in memory
"""
