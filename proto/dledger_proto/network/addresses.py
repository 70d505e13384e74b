"""The rule for addresses, "host:port": what members are configured with and name servers take.

Both use one rule. So a name server takes every address that a member can start with, and no
process registers an address that clients cannot use. Nothing checks that a process listens there.
"""

import re
from typing import Final

from dledger_proto.limits import ADDRESS_LENGTH_MAX, HOST_LABEL_LENGTH_MAX

PORT_MAX: Final = 65_535
_HOST: Final = re.compile(
    r"(?:[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+(?:%\w+)?\])\Z", re.ASCII
)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port" or "[v6]:port"; ValueError naming the rule."""
    if len(address) > ADDRESS_LENGTH_MAX:
        raise ValueError(f"has {len(address)} characters, must be at most {ADDRESS_LENGTH_MAX}")
    host, colon, port = address.rpartition(":")
    if not colon or not _HOST.match(host) or not port.isascii() or not port.isdigit():
        raise ValueError('must be "host:port" (an IPv6 host in brackets)')
    if host[0] != "[" and not all(
        1 <= len(label) <= HOST_LABEL_LENGTH_MAX for label in host.split(".")
    ):
        raise ValueError(f"each part of the host must be 1 to {HOST_LABEL_LENGTH_MAX} characters")
    if not 1 <= int(port) <= PORT_MAX:
        raise ValueError(f"the port must be 1 to {PORT_MAX}")
    return host, int(port)


def next_port(address: str) -> str:
    """Return the address with the port above; ValueError when there is none."""
    host, port = split_address(address)
    if port == PORT_MAX:
        raise ValueError(f"there is no port above {PORT_MAX}")
    return f"{host}:{port + 1}"


def check_address(address: str) -> str:
    """Return the address unchanged; ValueError when it is not "host:port"."""
    split_address(address)
    return address
