"""Which user a client is, its secret, and the steps of a login without input or output.

Owns: the file of the secret, which is read at each login, so that a new secret needs no restart.
Not owned: the messages (`dledger_proto.login.scram`), who sends them (`tokens`, `blocking`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import grpc

from dledger_proto.errors import invalid
from dledger_proto.login import scram
from dledger_proto.rpc.raw import Metadata
from dledger_proto.v1 import login_pb2 as pb

BEGIN: Final = "/dledger.v1.Login/Begin"
FINISH: Final = "/dledger.v1.Login/Finish"
LOGIN_KEY: Final = "dledger-login"
Now = Callable[[], float]
"""Monotonic seconds."""
RandomBytes = Callable[[int], bytes]
"""That nobody can foresee."""
SECRET_SIZE_MAX: Final = 1_024
RENEW_SHARE: Final = 0.8
"""The share of a token's life after which the client logs in again."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Which user somebody is."""

    user: str = ""
    """Empty: nobody, and no login is tried."""
    secret_file: str = ""


@dataclass(frozen=True, slots=True)
class Token:
    """What a login gave; an empty one: this server asks for no user."""

    text: str
    until: float
    """Monotonic seconds."""

    @property
    def metadata(self) -> Metadata:
        """What each call carries."""
        return ((LOGIN_KEY, self.text),) if self.text else ()


def login_of(credentials: Credentials, random_bytes: RandomBytes) -> scram.ClientLogin:
    """Begin a login of a user; INVALID_ARGUMENT when its secret cannot be had."""
    nonce = scram.nonce_text(random_bytes(scram.NONCE_SIZE))
    return scram.ClientLogin(credentials.user, _secret(credentials.secret_file), nonce)


def token_of(login: scram.ClientLogin, reply: pb.FinishLoginReply, now: float) -> Token:
    """Return the token of a finished login; DledgerError when the member proved nothing."""
    login.check(reply.server_final)
    return Token(reply.token, now + RENEW_SHARE * reply.lifetime_ms / 1_000)


def asks_for_no_user(error: grpc.RpcError) -> bool:
    """Tell whether a server refused a login because it knows none: a name server does."""
    return cast("grpc.Call", error).code() is grpc.StatusCode.UNIMPLEMENTED


def _secret(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(SECRET_SIZE_MAX + 1)
        secret = data.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise invalid(f"secret_file {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise invalid(f"secret_file {path}: is no UTF-8") from None
    if not secret or len(data) > SECRET_SIZE_MAX:
        raise invalid(f"secret_file {path}: {len(data)} bytes, must be 1 to {SECRET_SIZE_MAX}")
    return secret
