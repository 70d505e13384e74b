"""What members of a group give each other: log and state, or single entries.

    giving          the giver's side: committed entries, and a dump of the saved state
    single_entries  the giver's side for a damage: exactly the entries that a peer names
    givers          whom a member may ask, in which order
    receiving       the receiver's side of a refill: when it is needed, from whom, how fast

What is gathered where, and how it replaces the data, is `dledger.refill`'s. A damage is mended by
`dledger_broker.repair`.
"""
