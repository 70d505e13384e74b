"""The name server: where the members of every group are, who leads, which topics there are."""

from dledger_proto import __version__

__all__ = ["__version__"]
