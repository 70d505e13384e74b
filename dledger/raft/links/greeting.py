"""The greeting of a connection between members: who dials whom, and the listener's answer. Pure.

Owns: what is said, its bytes, and its bounds. Not owned: whether it is true
(`peer_listener.py`). Streams of refills say the same as metadata of gRPC calls.

    0  4  magic "DLG1"    4  ..  the pairs, one a line: name, "=", value (UTF-8)

The answer is a frame with the reason why the listener refuses (UTF-8); empty: it accepts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dledger.types import Buffer, MemberId

MAGIC: Final = b"DLG1"
GREETING_SIZE_MAX: Final = 4_096
"""Bytes of a greeting. Names have at most a few hundred."""
REASON_SIZE_MAX: Final = 4_096


class BadGreeting(ValueError):
    """The first frame of a connection is no greeting of ours; the connection is closed."""


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """Who this end of a link is."""

    cluster: str
    group: str
    member: MemberId
    incarnation: bytes

    def greeting(self, peer: MemberId) -> tuple[tuple[str, str], ...]:
        """Return what this end says to a peer."""
        return (
            ("dledger-cluster", self.cluster),
            ("dledger-group", self.group),
            ("dledger-member", self.member),
            ("dledger-to", peer),
            ("dledger-incarnation", self.incarnation.hex()),
        )


def encode_greeting(pairs: tuple[tuple[str, str], ...]) -> bytes:
    """Return the first frame of a connection. Names and values have no line breaks."""
    return MAGIC + "\n".join(f"{name}={value}" for name, value in pairs).encode()


def parse_greeting(frame: Buffer) -> Mapping[str, str]:
    """Return the pairs of a greeting; BadGreeting when the frame is none."""
    said = bytes(frame)
    if not said.startswith(MAGIC):
        raise BadGreeting(f"begins with {said[:4]!r}, not with {MAGIC!r}")
    try:
        lines = said[len(MAGIC) :].decode().split("\n")
    except UnicodeDecodeError as error:
        raise BadGreeting(f"is not UTF-8: {error}") from error
    pairs = [line.partition("=") for line in lines]
    if not all(equals for _, equals, _ in pairs):
        raise BadGreeting("has a line without '='")
    return {name: value for name, _, value in pairs}


def encode_answer(reason: str) -> bytes:
    """Return the listener's answer: why it refuses; "" accepts."""
    return reason.encode()[:REASON_SIZE_MAX]


def parse_answer(frame: Buffer) -> str:
    """Return why the listener refuses; "" when it accepts."""
    return bytes(frame).decode(errors="replace")
