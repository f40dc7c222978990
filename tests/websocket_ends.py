"""WebSocket by hand, both ends (RFC 6455, RFC 7692), so that a test knows every byte; nothing of it is the project's own reader."""

import json
import os
import socket
import struct
import zlib
from typing import Any

from faulty.steps import Peer, Step, send
from recorded import connect, read_all

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate"


class Packer:
    """One direction's frames, with the context of its compression."""

    def __init__(self, *, masks: bool, deflates: bool = False) -> None:
        self._masks = masks
        self._deflater = zlib.compressobj(wbits=-15) if deflates else None

    def frames(self, payload: bytes, opcode: int = TEXT, pieces: int = 1) -> list[bytes]:
        """A message as frames; a control frame is one."""
        flags = 0
        if self._deflater and opcode < CLOSE:
            payload, flags = (self._deflater.compress(payload) + self._deflater.flush(zlib.Z_SYNC_FLUSH))[:-4], 0x40
        size = max(1, -(-len(payload) // pieces))
        parts = [payload[at : at + size] for at in range(0, len(payload), size)] or [b""]
        firsts = [flags | opcode, *(0 for _ in parts[1:])]
        firsts[-1] |= 0x80
        return [self._frame(first, part) for first, part in zip(firsts, parts, strict=True)]

    def _frame(self, first: int, part: bytes) -> bytes:
        bit, size = 0x80 if self._masks else 0, len(part)
        if size < 126:
            head = bytes([first, bit | size])
        elif size < 1 << 16:
            head = bytes([first, bit | 126]) + struct.pack(">H", size)
        else:
            head = bytes([first, bit | 127]) + struct.pack(">Q", size)
        if not self._masks:
            return head + part
        key = os.urandom(4)
        return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(part))


def closing(code: int, reason: str = "") -> bytes:
    """The payload of a close frame."""
    return struct.pack(">H", code) + reason.encode()


class Client:
    """The client's end: what it sends, and the raw bytes that it got."""

    def __init__(self, url: str, target: str = "/v1/responses", *, deflates: bool = False, headers: tuple[str, ...] = ()) -> None:
        self.socket = connect(url)
        self._packer = Packer(masks=True, deflates=deflates)
        asked = [f"GET {target} HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
        asked += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", *([DEFLATE] if deflates else []), *headers]
        self.socket.sendall("".join(f"{line}\r\n" for line in asked).encode() + b"\r\n")
        self.head, _, self.got = self._until(b"\r\n\r\n").partition(b"\r\n\r\n")

    def _until(self, mark: bytes) -> bytes:
        got = b""
        while mark not in got:
            data = self.socket.recv(65536)
            assert data, f"closed before {mark!r}"
            got += data
        return got

    def say(self, payload: bytes, opcode: int = TEXT, pieces: int = 1) -> None:
        self.socket.sendall(b"".join(self._packer.frames(payload, opcode, pieces)))

    def wait_for(self, wanted: bytes) -> None:
        """Until exactly these bytes are there."""
        while len(self.got) < len(wanted):
            data = self.socket.recv(65536)
            assert data, "closed"
            self.got += data
        assert self.got == wanted
        self.got = b""

    def wait_for_end(self) -> bytes:
        """What comes until the other side is gone."""
        with self.socket:
            self.got += read_all(self.socket)
        return self.got

    def reset(self) -> None:
        """Leaves as an agent that is killed does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def upgraded(*headers: str) -> Step:
    """The server's agreement."""
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", "x-codex-turn-state: ts-1", *headers]
    return send("".join(f"{line}\r\n" for line in lines).encode() + b"\r\n")


async def hear(peer: Peer) -> bytes:
    """The bytes of the client's next frame, as they are; its mask stays on."""
    head = await peer.reader.readexactly(2)
    extended = {126: 2, 127: 8}.get(head[1] & 0x7F, 0)
    more = await peer.reader.readexactly(extended + 4)
    size = int.from_bytes(more[:extended]) if extended else head[1] & 0x7F
    return head + more + await peer.reader.readexactly(size)


async def heard(peer: Peer) -> None:
    """One frame of the client."""
    await hear(peer)


def create(number: int, *, before: str | None = None, text: str = "go on", **more: Any) -> bytes:
    """A `response.create` as Codex sends it: only what is new."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    body = {"type": "response.create", "model": "gpt-5", "store": False, "input": [item], "prompt_cache_key": f"key-{number}"}
    return json.dumps(body | ({} if before is None else {"previous_response_id": before}) | more).encode()


def answer(name: str, words: tuple[str, ...] = ("Done", " it."), *, prompt: int = 100) -> list[bytes]:
    """What a server says to it, message by message."""
    item = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "".join(words)}]}
    usage = {"input_tokens": prompt, "output_tokens": len(words), "input_tokens_details": {"cached_tokens": 0}}
    said: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": name, "status": "in_progress"}}]
    said += [{"type": "response.output_text.delta", "output_index": 0, "delta": word} for word in words]
    output = [item] if words else []
    said += [{"type": "response.output_item.done", "output_index": 0, "item": each} for each in output]
    said += [{"type": "response.completed", "response": {"id": name, "status": "completed", "output": output, "usage": usage}}]
    return [json.dumps(each).encode() for each in said]
