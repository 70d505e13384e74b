"""A member that the log of its group cannot fill any more gets log and state of another (D18).

A refill has three steps. Nothing of it counts for the group before the last one is done:

    staging       gathers log and state beside the data, each byte checked; goes on after a restart
    state_dump    the saved state of a member as one file: written by the giver, read at the end
    install       puts what was gathered in place of the data, at the next start of the member

What is sent, and when, is the broker's (`dledger_broker.refill`).
"""
