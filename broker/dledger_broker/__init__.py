"""A member of a broker group: services, use cases, admission, long polling."""

from dledger_proto import __version__

__all__ = ["__version__"]
