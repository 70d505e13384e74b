"""Commands that run processes: members, name servers, a local cluster, the demo.

config   `dledger config`: check a member's configuration, list its keys
demo     `dledger demo`: the proof on real input
servers  `dledger broker` and `dledger namesrv`
up       `dledger up`: a name server and one broker group on this machine, in one folder
"""
