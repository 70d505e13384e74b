"""Commands about who may do what.

tls  `dledger tls`: an authority, and certificates for the processes of a cluster
"""
