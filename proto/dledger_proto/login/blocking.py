"""Tokens of blocking channels, as `tokens` has them of asyncio ones. For one thread."""

import grpc

from dledger_proto.login.credentials import (
    BEGIN,
    FINISH,
    Credentials,
    Now,
    RandomBytes,
    Token,
    asks_for_no_user,
    login_of,
    token_of,
)
from dledger_proto.rpc.raw import Metadata, sync_unary
from dledger_proto.rpc.status import answer_of
from dledger_proto.v1 import login_pb2 as pb


class BlockingTokens:
    """The tokens of somebody's channels, by address."""

    def __init__(self, credentials: Credentials, now: Now, random_bytes: RandomBytes) -> None:
        self._credentials = credentials
        self._now = now
        self._random_bytes = random_bytes
        self._tokens: dict[str, Token] = {}

    def of(self, address: str, channel: grpc.Channel, timeout: float) -> Metadata:
        """Return what calls to an address carry; grpc.RpcError or DledgerError when it fails."""
        if not self._credentials.user:
            return ()
        token = self._tokens.get(address)
        if token is None or token.until <= self._now():
            token = self._tokens[address] = self._log_in(channel, timeout)
        return token.metadata

    def refused(self, address: str) -> bool:
        """Forget a token that the member took no more; False: there was none."""
        return self._tokens.pop(address, None) is not None

    def _log_in(self, channel: grpc.Channel, timeout: float) -> Token:
        login = login_of(self._credentials, self._random_bytes)
        begin = pb.BeginLoginRequest(client_first=login.first)
        try:
            answer = sync_unary(channel, BEGIN)(begin.SerializeToString(), timeout=timeout)
        except grpc.RpcError as error:
            if not asks_for_no_user(error):
                raise
            return Token("", float("inf"))
        first = answer_of(pb.BeginLoginReply, answer, write=False).server_first
        final = pb.FinishLoginRequest(client_final=login.final(first))
        answer = sync_unary(channel, FINISH)(final.SerializeToString(), timeout=timeout)
        return token_of(login, answer_of(pb.FinishLoginReply, answer, write=False), self._now())
