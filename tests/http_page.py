"""Asks one page of an HTTP port, without a library: what is sent is what the test says."""

import asyncio

ANSWER_BYTES_MAX = 16 << 20


async def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """Return the status and the body of one page."""
    return await ask_raw(port, f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())


async def ask_raw(port: int, request: bytes) -> tuple[int, str]:
    """Send these bytes; return the status and the body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        answer = await reader.read(ANSWER_BYTES_MAX)
        while more := await reader.read(ANSWER_BYTES_MAX):
            answer += more
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body.decode()
