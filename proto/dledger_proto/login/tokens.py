"""Tokens of asyncio channels: one login for each connection, whenever one is needed.

A token holds for one connection. When gRPC connects a channel anew, the member refuses the token,
and nothing was executed: the call is repeated with a new one, by the rules of its kind.
"""

import asyncio
import weakref

import grpc
import grpc.aio

from dledger_proto.login.credentials import (
    BEGIN,
    FINISH,
    Credentials,
    RandomBytes,
    Token,
    asks_for_no_user,
    login_of,
    token_of,
)
from dledger_proto.rpc.raw import Metadata, raw_unary
from dledger_proto.rpc.status import answer_of
from dledger_proto.v1 import login_pb2 as pb


class Tokens:
    """The tokens of one client's channels. Belongs to the running loop."""

    def __init__(self, credentials: Credentials, random_bytes: RandomBytes) -> None:
        self._credentials = credentials
        self._random_bytes = random_bytes
        self._tokens: weakref.WeakKeyDictionary[grpc.aio.Channel, Token] = (
            weakref.WeakKeyDictionary()
        )
        self._logging_in: weakref.WeakKeyDictionary[grpc.aio.Channel, asyncio.Task[Token]] = (
            weakref.WeakKeyDictionary()
        )

    async def of(self, channel: grpc.aio.Channel, timeout: float) -> Metadata:
        """Return what calls of a channel carry; it logs in first when it has to.

        grpc.aio.AioRpcError or DledgerError when that fails; TimeoutError after `timeout` seconds.
        """
        if not self._credentials.user:
            return ()
        token = self._tokens.get(channel)
        if token is None or token.until <= asyncio.get_running_loop().time():
            task = self._logging_in.get(channel)
            if task is None or task.done():
                task = asyncio.get_running_loop().create_task(
                    self._log_in(channel, timeout), name="dledger login"
                )
                self._logging_in[channel] = task
            async with asyncio.timeout(timeout):
                token = await asyncio.shield(task)
        return token.metadata

    def refused(self, channel: grpc.aio.Channel, metadata: Metadata) -> bool:
        """Forget the token of a call that the member refused; False: no other token helps.

        Many calls may have carried it, and one of them may have logged in again by now.
        """
        token = self._tokens.get(channel)
        if token is not None and set(token.metadata) <= set(metadata):
            del self._tokens[channel]
        return bool(self._credentials.user)

    async def _log_in(self, channel: grpc.aio.Channel, timeout: float) -> Token:
        login = login_of(self._credentials, self._random_bytes)
        begin = pb.BeginLoginRequest(client_first=login.first)
        try:
            answer = await raw_unary(channel, BEGIN)(begin.SerializeToString(), timeout=timeout)
        except grpc.aio.AioRpcError as error:
            if not asks_for_no_user(error):
                raise
            token = Token("", float("inf"))
        else:
            first = answer_of(pb.BeginLoginReply, answer, write=False).server_first
            # Off the loop: a secret that a person chose has many rounds.
            final = pb.FinishLoginRequest(client_final=await asyncio.to_thread(login.final, first))
            answer = await raw_unary(channel, FINISH)(final.SerializeToString(), timeout=timeout)
            reply = answer_of(pb.FinishLoginReply, answer, write=False)
            token = token_of(login, reply, asyncio.get_running_loop().time())
        self._tokens[channel] = token
        return token
