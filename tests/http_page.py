"""Asks one page of an HTTP port, without a library: what is sent is what the test says."""

import asyncio

ANSWER_BYTES_MAX = 16 << 20


async def ask(port: int, path: str, *, closing: bool = False) -> tuple[int, str]:
    """Return the status and the body of one page.

    `closing`: ask for the end of the connection, as a server needs it that would keep it.
    """
    head = "Host: here\r\nConnection: close\r\n" if closing else "Host: here\r\n"
    version = "1.0" if closing else "1.1"  # of HTTP/1.0 no answer comes in chunks
    return await ask_raw(port, f"GET {path} HTTP/{version}\r\n{head}\r\n".encode())


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
