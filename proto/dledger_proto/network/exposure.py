"""Which addresses only this machine reaches, and what a process with others must be told.

Owns the rule that members and name servers share: a process that other machines may reach starts
only with TLS, or when somebody wrote that it does without. What cannot be decided counts as
reached: a wildcard, and a name that has no number here.
"""

import enum
import ipaddress
import socket
from collections.abc import Callable, Collection
from typing import Final

from dledger_proto.network.addresses import split_address

VARIABLE: Final = "DLEDGER_SECURITY"
EXPOSED: Final = "other machines may reach it"


class Security(enum.StrEnum):
    """Whether a process that other machines may reach starts without TLS."""

    AUTO = "auto"
    OFF = "off"


def exposed_because(address: str, resolve: Callable[[str], Collection[str]]) -> str:
    """Return why other machines may reach "host:port"; empty when only this machine does.

    `resolve` returns the numbers of a host that is not one itself.
    """
    host = split_address(address)[0].strip("[]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        numbers = resolve(host)
    else:
        return "" if _is_loopback(host) else EXPOSED
    if not numbers:
        return f"{EXPOSED}: nobody here knows its number"
    return next(
        (f"{EXPOSED}: it is {number}" for number in numbers if not _is_loopback(number)), ""
    )


def numbers_of(host: str) -> list[str]:
    """Ask the machine what numbers a host has; none when it does not know."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return []
    return [str(each[4][0]) for each in found]


def _is_loopback(number: str) -> bool:
    ip = ipaddress.ip_address(number)
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    return ip.is_loopback
