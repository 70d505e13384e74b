"""A connection to the port on which members take links, made by hand."""

import asyncio
import ssl
from typing import Final

from dledger.raft.links.frame_stream import SIZE
from dledger.raft.links.greeting import encode_greeting, parse_answer
from dledger.raft.wire import message_codec
from dledger.raft.wire.link_frame import encode_frame
from dledger.raft.wire.messages import Message

CLOSED_SECONDS_MAX: Final = 20.0


class Caller:
    """A connection to the port of links, made by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def dial(cls, port: int, tls: ssl.SSLContext | None = None) -> "Caller":
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def send_frame(self, frame: bytes) -> None:
        self.send(SIZE.pack(len(frame)) + frame)

    def send_messages(self, *messages: Message) -> None:
        self.send_frame(b"".join(encode_frame([message_codec.encode(each) for each in messages])))

    async def greet(self, said: tuple[tuple[str, str], ...]) -> str:
        """Say who calls; return why the listener refuses, "" when it accepts."""
        self.send_frame(encode_greeting(said))
        return await self.answer()

    async def answer(self) -> str:
        """Return the listener's answer."""
        (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
        return parse_answer(await self._reader.readexactly(size))

    async def is_closed(self) -> bool:
        """Tell whether the other end closes; TimeoutError when it does not for a long time."""
        async with asyncio.timeout(CLOSED_SECONDS_MAX):
            try:
                return await self._reader.read() == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self._writer.close()
