"""Commands about a running cluster.

consumer_groups  `dledger group create`, `update`, `delete`, `list`, `show`
coordinator      What the coordinator of a consumer group says
dead_letters     `dledger dlq`: list, show, export, resend and purge dead letters
group_progress   `dledger group lag`, `why`, `resume`: how far a consumer group is, its pauses
group_why        Why queues of a consumer group make no progress, in a sentence each
health           `dledger health`: whether one process answers
holds            `dledger hold`: what keeps queues from being trimmed; list it, end it
offsets          `dledger offsets`, `trim`, `transfer`
routes           `dledger routes`: where clients are sent, and which member claims what
status           `dledger status`: every member of every group, asked one by one, in a table
status_rows      The rows of `dledger status`: what members said, made into one row for each
topics           `dledger topic`: create, list, describe, update, delete
"""
