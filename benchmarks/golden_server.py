"""A Chat server in a process of its own that notes, on the monotonic clock, when a request's first byte came and when it handed tokens to
the kernel. It prints its port, then one JSON line for each answer."""

import asyncio
import hashlib
import json
import socket
import time

TTFT_S, GAP_S, TOKENS, JITTER_S = 0.06, 0.004, 20, 0.02
NS = time.monotonic_ns


def events(number: int) -> list[bytes]:
    """A role, twenty tokens, usage, the end; no two answers are alike."""
    head = f'"id":"chatcmpl-{number}","object":"chat.completion.chunk","created":1,"model":"golden"'
    deltas = ['{"role":"assistant","content":""}', *[f'{{"content":"tok{i} "}}' for i in range(TOKENS)]]
    chunks = [f'{{{head},"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}' for delta in deltas]
    chunks.append(f'{{{head},"choices":[{{"index":0,"delta":{{}},"finish_reason":"stop"}}]}}')
    usage = f'{{"prompt_tokens":1000,"completion_tokens":{TOKENS},"prompt_tokens_details":{{"cached_tokens":0}}}}'
    chunks.append(f'{{{head},"choices":[],"usage":{usage}}}')
    return [f"data: {chunk}\n\n".encode() for chunk in (*chunks, "[DONE]")]


class Golden(asyncio.Protocol):
    """Serves requests one after the other on a connection and prints what it did of each."""

    served = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.buffer, self.came_ns = transport, bytearray(), 0
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if not self.buffer:
            self.came_ns = NS()
        self.buffer += data
        head, found, _ = self.buffer.partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in bytes(head).lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        if not found or len(self.buffer) < len(head) + 4 + length:
            return
        self.buffer.clear()
        self.answer(Golden.served)
        Golden.served += 1

    def answer(self, number: int) -> None:
        loop, said = asyncio.get_running_loop(), events(number)
        row = {"sha256": hashlib.sha256(b"".join(said)).hexdigest(), "came_ns": self.came_ns}
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + framed(said[0]))
        first = loop.time() + TTFT_S + (number * 7919 % 17 - 8) / 8 * JITTER_S
        for place, event in enumerate(said[1:]):
            mark = {0: "first_ns", TOKENS - 1: "last_ns", len(said) - 2: "end"}.get(place)
            loop.call_at(first + place * GAP_S, self.send, framed(event), row, mark)

    def send(self, data: bytes, row: dict[str, object], mark: str | None) -> None:
        if mark in ("first_ns", "last_ns"):
            row[mark] = NS()
        self.transport.write(data + (b"0\r\n\r\n" if mark == "end" else b""))
        if mark == "end":
            print(json.dumps(row), flush=True)


def framed(event: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(event), event)


async def serve() -> None:
    """Until killed."""
    server = await asyncio.get_running_loop().create_server(Golden, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
