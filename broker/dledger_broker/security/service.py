"""The calls of `dledger.v1.Login`.

Owns the translation of protobuf. Not owned: what a login is (`logins`).
"""

from typing import Final

from dledger_broker.rpc.calls import Call
from dledger_broker.security.logins import TOKEN_SECONDS
from dledger_proto.errors import Code, DledgerError
from dledger_proto.v1 import login_pb2 as pb

LIFETIME_MS: Final = int(TOKEN_SECONDS * 1_000)


async def begin(call: Call, request: pb.BeginLoginRequest) -> pb.BeginLoginReply:
    """Answer a client's first message; UNIMPLEMENTED where nobody asks for users."""
    if not call.gate.is_on:
        raise DledgerError(Code.UNIMPLEMENTED, "this member asks for no users")
    # For every user alike: what is unknown must not be told by the time that it takes.
    is_current = await call.gate.catch_up()
    first = call.gate.logins.begin(request.client_first, call.peer, is_current=is_current)
    return pb.BeginLoginReply(server_first=first)


async def finish(call: Call, request: pb.FinishLoginRequest) -> pb.FinishLoginReply:
    """Check a proof, and give a token for this connection."""
    asked = ""
    try:
        asked = call.gate.logins.asked_user(request.client_final)
        final, token, user = call.gate.logins.finish(request.client_final, call.peer)
    except DledgerError as error:
        call.gate.audit.refused("login", call.peer, asked, error)
        raise
    call.gate.audit.done("login", call.peer, user.name)
    return pb.FinishLoginReply(server_final=final, token=token, lifetime_ms=LIFETIME_MS)
