"""dledger: a Raft-replicated message log. No server, no command line, no routes live here."""

from dledger_proto import __version__

__all__ = ["__version__"]
