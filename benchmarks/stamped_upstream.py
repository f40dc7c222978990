"""An upstream in a program of its own whose every event carries when it was handed to the kernel (CLOCK_MONOTONIC, ns). Prints its port.

The query says what it answers: `events` of them, `gap_us` apart, each padded to `size` bytes; `plain` answers with that many bytes and a
content-length instead.
"""

import asyncio
import re
import socket
import time

STAMP = b'"at":"%020d"'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n"
END = b"0\r\n\r\n"


def event(size: int) -> bytes:
    """One event with room for a stamp, as its chunk on the wire."""
    said = b'event: content_block_delta\ndata: {%s,"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}\n\n'
    body = said % (STAMP % 0, b"token ")
    body = said % (STAMP % 0, b"token " + b"x" * max(0, size - len(body)))
    return b"%x\r\n%s\r\n" % (len(body), body)


class Upstream(asyncio.Protocol):
    """Requests one after the other on a connection. Events are due at fixed times from the first, so that a late one delays no other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.buffer, self.wanted, self.asked = transport, bytearray(), 0, b""
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if self.wanted:
            self.wanted -= len(data)
        else:
            self.buffer += data
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            length = re.search(rb"content-length: (\d+)", head.lower())
            self.asked, self.wanted = bytes(head.partition(b"\r\n")[0]), int(length[1] if length else 0) - len(rest)
            self.buffer.clear()
        if not self.wanted:
            self.answer({name: int(value) for name, value in re.findall(rb"(\w+)=(\d+)", self.asked)})

    def answer(self, asked: dict[bytes, int]) -> None:
        if b"plain" in asked:
            self.transport.write(PLAIN % asked[b"plain"] + b"x" * asked[b"plain"])
            return
        count, gap_s, model = asked.get(b"events", 5), asked.get(b"gap_us", 0) / 1e6, event(asked.get(b"size", 0))
        place = model.index(b'"at":"') + 6
        self.before, self.after = model[:place], model[place + 20 :]
        self.transport.write(HEAD)
        if gap_s:
            self.say(asyncio.get_running_loop().time(), gap_s, count)
            return
        self.transport.write(b"".join(self.before + b"%020d" % time.monotonic_ns() + self.after for _ in range(count)) + END)

    def say(self, due: float, gap_s: float, left: int) -> None:
        self.transport.write(self.before + b"%020d" % time.monotonic_ns() + self.after)
        if left > 1:
            asyncio.get_running_loop().call_at(due + gap_s, self.say, due + gap_s, gap_s, left - 1)
        else:
            self.transport.write(END)


async def serve() -> None:
    """Until killed."""
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
