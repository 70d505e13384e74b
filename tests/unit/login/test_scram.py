"""The messages of a login: what proves, what does not, and what a stranger may send."""

import pytest

from dledger_proto.errors import Code, DledgerError
from dledger_proto.login import scram
from dledger_proto.login.derivation import keys_of

SECRET = "pencil"
SALT = b"W\x2f\x98\xb3" * 4


def keys(secret: str = SECRET) -> scram.Keys:
    return scram.Keys(SALT, 4_096, *keys_of(secret, SALT, 4_096))


def one_login(
    client_secret: str, member_keys: scram.Keys
) -> tuple[scram.ClientLogin, scram.Asked, str, scram.Proof]:
    login = scram.ClientLogin("user", client_secret, "rOprNGfwEbeRWgbNEkqO")
    asked = scram.parse_client_first(login.first)
    first = scram.server_first(asked, "%hvYDpWUa2RaTCAfuxFIlj)hNlF", member_keys)
    return login, asked, first, scram.parse_client_final(login.final(first))


def test_the_example_of_the_standard() -> None:
    """RFC 7677, section 3."""
    login = scram.ClientLogin("user", SECRET, "rOprNGfwEbeRWgbNEkqO")
    assert login.first == "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert login.final(first) == (
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    login.check("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_both_sides_prove_that_they_know_the_secret() -> None:
    login, asked, first, proof = one_login(SECRET, keys())
    assert scram.proves(asked, first, proof, keys())
    login.check(scram.server_final(asked, first, proof, keys()))


def test_another_secret_proves_nothing() -> None:
    _, asked, first, proof = one_login("Pencil", keys())
    assert not scram.proves(asked, first, proof, keys())


def test_a_member_that_does_not_know_the_user_is_found_out() -> None:
    login, asked, first, proof = one_login(SECRET, keys())
    with pytest.raises(DledgerError) as refused:
        login.check(scram.server_final(asked, first, proof, keys("guess")))
    assert refused.value.code is Code.UNAUTHENTICATED


def test_what_a_member_keeps_does_not_log_in() -> None:
    """Whoever reads the state has the stored key, and not the key that it is the hash of."""
    stolen = keys()
    login, asked, first, _ = one_login(SECRET, keys())
    forged = scram.Proof(asked.nonce, login.final(first).rpartition(",p=")[0], stolen.stored_key)
    assert not scram.proves(asked, first, forged, keys())


@pytest.mark.parametrize(
    "first",
    [
        "r=other,s=c2FsdA==,i=4096",
        "r=rOprNGfwEbeRWgbNEkqO,s=c2FsdA==,i=4096",
        "r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==,i=1",
        "r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==,i=9999999",
        "r=rOprNGfwEbeRWgbNEkqOx,s=***,i=4096",
        "",
        "e=other-error",
    ],
)
def test_a_bad_member_learns_nothing(first: str) -> None:
    """Few rounds would make the secret easy to guess; many would keep the client busy."""
    login = scram.ClientLogin("user", SECRET, "rOprNGfwEbeRWgbNEkqO")
    with pytest.raises(DledgerError, match="INVALID_ARGUMENT: server_first"):
        login.final(first)


@pytest.mark.parametrize(
    "text",
    ["", "n,,n=,r=abcdefghijklmnopqrst", "n,,n=a b,r=abcdefghijklmnopqrst", "n,,n=a,r=short",
     "y,,n=a,r=abcdefghijklmnopqrst", "n,,n=a,r=" + "x" * 2_000],
)  # fmt: skip
def test_a_bad_first_message_is_refused(text: str) -> None:
    with pytest.raises(DledgerError, match="INVALID_ARGUMENT: client_first"):
        scram.parse_client_first(text)


@pytest.mark.parametrize(
    "text", ["", "c=biws,r=abcdefghijklmnopqrst", "c=eSws,r=abcdefghijklmnopqrst,p=AAAA",
             "c=biws,r=abcdefghijklmnopqrst,p=A"]
)  # fmt: skip
def test_a_bad_final_message_is_refused(text: str) -> None:
    with pytest.raises(DledgerError, match="INVALID_ARGUMENT: client_final"):
        scram.parse_client_final(text)
