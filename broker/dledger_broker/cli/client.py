"""The client objects of commands: how they reach the cluster, and an `Admin` with their options."""

from dataclasses import replace

from dledger_broker.cli.connect import credentials, is_inside, parse_name_servers, tls_folder
from dledger_client import Admin, ConnectionConfig


def connection(timeout: float | None = None) -> ConnectionConfig:
    """Return how a command reaches the cluster; `timeout` in seconds is that of each call."""
    who = credentials()
    config = ConnectionConfig(
        inside=is_inside(),
        tls_folder=tls_folder(),
        user=who.user,
        secret_file=who.secret_file,
    )
    if timeout is None:
        return config
    return replace(config, call_timeout_ms=round(timeout * 1_000))


def open_admin(name_servers: str, timeout: float) -> Admin:
    """Return an admin, to be used in a `with` statement; each of its calls has `timeout`."""
    return Admin(parse_name_servers(name_servers), connection(timeout))
