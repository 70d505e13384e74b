"""Targets: how strangers begin TLS, and the messages of a login, as both sides read them."""

from typing import Final

from dledger.raft.links.handshake import RECORD_HEAD, RECORD_SIZE_MAX, NoTls, record_size
from dledger_proto.errors import DledgerError
from dledger_proto.login import scram
from dledger_proto.login.derivation import keys_of
from tests.fuzz.target import Target

SALT: Final = bytes(range(16))
NONCE: Final = "rOprNGfwEbeRWgbNEkqO"
KEYS: Final = scram.Keys(SALT, scram.ROUNDS_MIN, *keys_of("secret", SALT, scram.ROUNDS_MIN))
WORDS: Final = (b"n,,", b"n=", b",r=", b",s=", b",i=", b",p=", b"c=biws", b"v=", b"=", b"==",
                b"9" * 7, b"," * 1_000)  # fmt: skip
ASKED: Final = scram.parse_client_first(scram.client_first("user", NONCE))
FIRST: Final = scram.server_first(ASKED, "abcdefghijklmnopqrst", KEYS)
FINAL: Final = scram.ClientLogin("user", "secret", NONCE).final(FIRST)
LAST: Final = scram.server_final(ASKED, FIRST, scram.parse_client_final(FINAL), KEYS)


def _first(data: bytes) -> None:
    """Read what a client says first; what is taken can be answered."""
    asked = scram.parse_client_first(data.decode(errors="replace"))
    scram.server_first(asked, NONCE, KEYS)


def _final(data: bytes) -> None:
    """Read a proof; only the right one proves."""
    proof = scram.parse_client_final(data.decode(errors="replace"))
    if scram.proves(ASKED, FIRST, proof, KEYS):
        assert proof == scram.parse_client_final(FINAL), "another proof proves"


def _of_member(data: bytes) -> None:
    """Read what a member says, as a client does; rounds are bounded, or it would take long."""
    login = scram.ClientLogin("user", "secret", NONCE)
    first, _, last = data.decode(errors="replace").partition("\n")
    if ",i=4096" in first:
        login.final(first)
    login.check(last)


def _record_head(data: bytes) -> None:
    """Read how a stranger begins TLS."""
    assert 0 <= record_size(data) <= RECORD_HEAD.size + RECORD_SIZE_MAX


TARGETS: Final = (
    Target(
        "tls-record", _record_head, (NoTls,),
        lambda: (bytes.fromhex("1603010200") + bytes(512), b""),
        ("dledger.raft.links.handshake:record_size",), tokens=(b"GET ", b"\x16\x03\x01"),
    ),
    Target(
        "login-first", _first, (DledgerError,),
        lambda: (scram.client_first("user", NONCE).encode(),),
        ("dledger_proto.login.scram:parse_client_first",), tokens=WORDS,
    ),
    Target(
        "login-final", _final, (DledgerError,), lambda: (FINAL.encode(),),
        ("dledger_proto.login.scram:parse_client_final",), tokens=WORDS,
    ),
    Target(
        "login-member", _of_member, (DledgerError,), lambda: (f"{FIRST}\n{LAST}".encode(),),
        (
            "dledger_proto.login.scram:ClientLogin.final",
            "dledger_proto.login.scram:ClientLogin.check",
        ),
        tokens=WORDS, tries=500,
    ),
)  # fmt: skip
