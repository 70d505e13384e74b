"""dledger: a Raft-replicated message log. No server, no command line, no routes live here."""
