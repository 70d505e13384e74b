"""How the queues of a consumer group are dealt out to its consumers (S90-S96). Pure.

blocks  Average and circle (S91, S92)
choose  Which strategy deals which queues
given   Config: every consumer says which queues it takes (S94)
model   What strategies deal out, and to whom
ring    Consistent hashing (S95)
rooms   Machine rooms (S93, S96)
sticky  The most even deal that moves the fewest queues
"""
