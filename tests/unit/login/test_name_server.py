"""A server that knows no logins: calls to it carry none, whichever way they are made."""

import asyncio
import os
import time
from pathlib import Path

import grpc
import grpc.aio

from dledger_proto.login.blocking import BlockingTokens
from dledger_proto.login.credentials import Credentials
from dledger_proto.login.tokens import Tokens


def test_a_server_without_logins_is_called_without_one(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of a person")
    who = Credentials("alice", str(secret))

    async def scenario() -> None:
        server = grpc.aio.server()  # pyright: ignore[reportUnknownMemberType]
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        async with grpc.aio.insecure_channel(address) as channel:
            assert await Tokens(who, os.urandom).of(channel, 10) == ()

        def blocking() -> object:
            with grpc.insecure_channel(address) as channel:
                return tokens.of(address, channel, 10)

        assert await asyncio.to_thread(blocking) == ()
        await server.stop(None)

    tokens = BlockingTokens(who, time.monotonic, os.urandom)
    asyncio.run(scenario())
