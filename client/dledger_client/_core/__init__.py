"""The pure half of the client: decisions without I/O, clock or chance.

arguments       Checks of numbers that callers give, before anything depends on them
delays          When a message is to be delivered: its delay, its time or its level
delivery        Where the outcome of one message is found: its batch, and its position in it
ids             Producer ids and running numbers (D11, S117)
members         Which member of a group to ask
message_checks  Checks of one message before anything is sent (S33), and its size in a batch
retry           What a producer does after each answer
routes          The route table: which group holds a queue, who leads it, where its members are
schedules       Schedules as users see them, and the message of one, checked
users           Users and policies as users of the client see them
consumer/       A consumer without I/O
group/          A consumer in a consumer group, without I/O
producer/       A producer without I/O
"""
