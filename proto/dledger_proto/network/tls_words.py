"""What errors of TLS mean, in words: those of OpenSSL by `ssl`, and those of gRPC. Pure.

Owns the table. The texts are the libraries' own; tests make each of them with the real libraries.
"""

import re
from typing import Final

_MEANINGS: Final = tuple(
    (re.compile(pattern, re.DOTALL), meaning)
    for pattern, meaning in (
        ("certificate has expired", "its certificate has ended"),
        ("certificate is not yet valid", "its certificate is not valid yet, or a clock is off"),
        (
            "self-signed certificate|unable to get (local )?issuer certificate",
            "its certificate is of another authority than ours",
        ),
        (
            "ostname mismatch|IP address mismatch|Hostname Verification Check failed",
            "its certificate is of another host or process than the one that is wanted",
        ),
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "it has no certificate"),
        ("WRONG_VERSION_NUMBER|HTTP_REQUEST", "it speaks plain text, and this side TLS"),
        (
            "failed to connect.*(Socket closed|reset by peer)|ConnectionResetError|UNEXPECTED_EOF|"
            "before it was accepted: .*(closed|reset) by (the )?peer",
            "the other side ended the connection: it may refuse our certificate, or one side may "
            "speak TLS and the other plain text; its log says which",
        ),
    )
)


def meaning(text: str) -> str:
    """Return what an error means; empty for one that is not of TLS."""
    return next((words for pattern, words in _MEANINGS if pattern.search(text)), "")


def explained(text: str) -> str:
    """Return an error with its meaning before it, if it has one."""
    words = meaning(text)
    return f"{words} ({text})" if words else text
