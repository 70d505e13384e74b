"""A client object for a command: an `Admin` with the command's options."""

from dledger_broker.cli.connect import is_inside, parse_name_servers
from dledger_client import Admin, ConnectionConfig


def open_admin(name_servers: str, timeout: float) -> Admin:
    """Return an admin, to be used in a `with` statement; each of its calls has `timeout`."""
    config = ConnectionConfig(inside=is_inside(), call_timeout_ms=round(timeout * 1_000))
    return Admin(parse_name_servers(name_servers), config)
