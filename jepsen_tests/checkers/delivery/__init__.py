"""Rules about delivery: what consumer groups did with messages, and when delayed ones came.

attempts   C29: failures are counted right; dead letters are there once and sent again once
calls      what all these rules see: the calls of listeners, by group and record
delays     C30: delayed messages come in time and not at all once they are taken back
delivered  C27: each group finishes with each message, and with no message again
order      C28: ordered groups keep their order, one call at a time
"""
