"""A member mends damage on its own disk with what its peers have (I15).

    scrub     when the log is read through, and at which rate; what a damage that was met leads to
    fetching  exactly the damaged entries, from a peer

What is damage, and how it is mended, is `dledger.repair`'s. A peer's side is
`dledger_broker.refill.single_entries`.
"""
