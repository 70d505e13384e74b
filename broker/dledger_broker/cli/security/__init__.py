"""Commands about who may do what.

issuing    makes certificates for commands, and shows them
replacing  `dledger tls authority`: a new authority takes over from the old one
tls        `dledger tls`: an authority, and certificates for the processes of a cluster
"""
