"""The captures of real agents as exchanges, for every test that wants them: `import captures`.

The folder lies beside the project and is no part of it: tests that use it carry `@captures.needed`.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from storage.records import Arrival, Exchange, Failure, FailureKind, Origin, Request, Response, Transport

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "captures"

needed = pytest.mark.skipif(not FOLDER.is_dir(), reason="the captures of real agents are not beside this project")


@dataclass(frozen=True, slots=True)
class Captured:
    """`id` as in truth.json (`r47`, `r2/f0`); `omitted`: only the size of the request body was kept."""

    id: str
    exchange: Exchange
    omitted: bool = False


def names() -> list[str]:
    """`harness/scenario` of every capture; empty when there are none."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("*/*.jsonl"))


def truth() -> dict[str, Any]:
    """The answer key."""
    found: dict[str, Any] = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))
    return found


def events(name: str) -> Iterator[dict[str, Any]]:
    """The events of one capture, in order."""
    for line in (FOLDER / f"{name}.jsonl").read_bytes().split(b"\n"):
        if line.strip():
            yield json.loads(line)


@dataclass
class _Open:
    """An exchange being put together. `began` is epoch ns."""

    id: str
    began: int
    request: Request
    omitted: bool = False
    transport: Transport = Transport.HTTP1
    connection: int = 0
    response: Response | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    failure: Failure | None = None
    ended: int | None = None

    def cut(self, kind: FailureKind, now: int) -> None:
        """The wire broke, unless the answer was whole."""
        if self.ended is None:
            self.failure = Failure(kind=kind, message=kind.value, at_ns=now - self.began)
            self.ended = now

    def captured(self) -> Captured:
        """The exchange as a recorder would have left it."""
        response = replace(self.response, arrivals=tuple(self.arrivals)) if self.response else None
        exchange = Exchange(
            started_ns=self.began,
            request=self.request,
            sent_ns=0,
            response=response,
            failure=self.failure,
            ended_ns=None if self.ended is None else self.ended - self.began,
            transport=self.transport,
            origin=Origin(connection=str(self.connection)),
        )
        return Captured(self.id, exchange, self.omitted)


def load(name: str) -> list[Captured]:
    """Every HTTP exchange of one capture and every message sent on a WebSocket, in order of start."""
    reader = _Reader()
    for event in events(name):
        reader.event(event)
    return [each.captured() for each in reader.order]


class _Reader:
    def __init__(self) -> None:
        self.order: list[_Open] = []
        self._http: dict[int, _Open] = {}
        self._socket: dict[int, _Open] = {}
        self._messages: dict[int, int] = {}
        self._unix_ns = 1_700_000_000_000_000_000

    def event(self, e: dict[str, Any]) -> None:
        now = self._unix_ns + round(e.get("t", 0) * 1e9)
        match e["ev"]:
            case "start":
                self._unix_ns = round((e.get("unix_t0") or 1_700_000_000) * 1e9)
            case "request":
                self._request(e, self._unix_ns + round((e.get("t_head") or e["t"]) * 1e9))
            case "response" | "response_head":
                self._head(e, now)
            case "chunk":
                self._arrival(self._http[e["req"]], now, e["data"].encode())
            case "response_end":
                self._http[e["req"]].ended = now
            case "client_disconnect":
                self._cut(e, FailureKind.CLIENT_LEFT, now)
            case "server_reset" | "server_close":
                self._cut(e, FailureKind.SERVER_CUT, now)
            case "ws_frame" if e["opcode"] == 1:
                self._frame(e, now)

    def _request(self, e: dict[str, Any], now: int) -> None:
        body = base64.b64decode(e["body_b64"]) if "body_b64" in e else e.get("body", "").encode()
        headers = tuple((name, value) for name, value in e["headers"])
        host = next((value for name, value in headers if name.lower() == "host"), "localhost")
        request = Request(method=e["method"], url=f"http://{host}{e['target']}", headers=headers, body=body)
        self._open(_Open(f"r{e['req']}", now, request, "body_omitted" in e, connection=e["conn"]), self._http, e["req"])

    def _open(self, opened: _Open, among: dict[int, _Open], number: int) -> None:
        among[number] = opened
        self.order.append(opened)

    def _head(self, e: dict[str, Any], now: int) -> None:
        opened = self._http[e["req"]]
        headers = tuple((name, value) for name, value in e["headers"])
        opened.response = Response(status=e["status"], headers=headers, headers_at_ns=now - opened.began)
        if e["ev"] == "response":
            self._arrival(opened, now, e.get("body", "").encode())
            opened.ended = now

    def _arrival(self, opened: _Open, now: int, data: bytes) -> None:
        if data:
            opened.arrivals.append(Arrival(now - opened.began, data))

    def _cut(self, e: dict[str, Any], kind: FailureKind, now: int) -> None:
        for among in (self._http, self._socket):
            if e.get("req") in among:
                among[e["req"]].cut(kind, now)

    def _frame(self, e: dict[str, Any], now: int) -> None:
        number, text = e["req"], e["text"].encode()
        if e["dir"] == "c2s":
            index = self._messages.get(number, 0)
            self._messages[number] = index + 1
            upgrade = self._http[number]
            request = replace(upgrade.request, body=text)
            opened = _Open(f"r{number}/f{index}", now, request, transport=Transport.WS, connection=upgrade.connection)
            opened.response = Response(status=200, headers=(), headers_at_ns=0)  # as the recorder has it
            self._open(opened, self._socket, number)
            return
        opened = self._socket[number]
        self._arrival(opened, now, text + b"\n")
        if json.loads(text).get("type") in ("response.completed", "response.failed", "response.incomplete", "error"):
            opened.ended = now
