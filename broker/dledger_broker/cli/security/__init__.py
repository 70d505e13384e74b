"""Commands about who may do what.

acl        `dledger acl`: users and their policies
issuing    makes certificates for commands, and shows them
replacing  `dledger tls authority`: a new authority takes over from the old one
secrets    A new secret of a user: drawn or chosen, and where it goes
tls        `dledger tls`: an authority, and certificates for the processes of a cluster
"""
