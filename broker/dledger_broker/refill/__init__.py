"""Refills: a member that the log of its group cannot fill any more gets log and state of another.

    giving       the giver's side: committed entries, and a dump of the saved state
    receiving    the receiver's side: when a refill is needed, from whom, how fast

What is gathered where, and how it replaces the data, is `dledger.refill`'s.
"""
