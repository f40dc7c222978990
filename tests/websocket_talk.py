"""A client of Responses over a WebSocket that reads what the server says, message by message."""

import json
from typing import Any

from websocket_ends import DEFLATE, Client

from tracer.frames import FrameReader, Message

LAST_WORDS = ("response.completed", "response.incomplete", "response.failed", "error")


class Talk:
    """A client that reads the server's messages."""

    def __init__(self, url: str, *, deflates: bool = False) -> None:
        self.client = Client(url, deflates=deflates)
        self._reader = FrameReader(deflates=DEFLATE.encode().lower() in self.client.head.lower())
        self._heard = self._reader.feed(0, self.client.got)

    def hear(self) -> Message:
        while not self._heard:
            data = self.client.socket.recv(65536)
            assert data, "closed"
            self._heard += self._reader.feed(0, data)
        return self._heard.pop(0)

    def ask(self, text: bytes) -> list[dict[str, Any]]:
        """What the server says to a request, to its last word."""
        self.client.say(text)
        return self.rest()

    def rest(self) -> list[dict[str, Any]]:
        """To the next last word."""
        said: list[dict[str, Any]] = []
        while not said or said[-1]["type"] not in LAST_WORDS:
            said.append(json.loads(self.hear().payload))
        return said
