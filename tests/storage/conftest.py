"""What the tests of the store share: a trace, and exchanges of an agent's session as a client would send them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.records import Arrival, Exchange, Request, Response
from storage.trace import Trace

STARTED_NS = 1_790_000_000_000_000_000


def body_of(turns: int, *, system: str = "You are an agent.", marked: bool = True) -> bytes:
    """A Messages request of so many messages, `messages` first in the JSON and the cache marker on the last."""
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": f"message {index}"}]} for index in range(turns)]
    if marked and messages:
        messages[-1]["content"][0]["cache_control"] = {"type": "ephemeral"}
    tools = [{"name": f"tool{index}", "input_schema": {"type": "object"}} for index in range(3)]
    return json.dumps({"model": "m", "messages": messages, "system": system, "tools": tools}, separators=(",", ":")).encode()


def exchange_of(turns: int, **changes: Any) -> Exchange:
    """A whole exchange that began so many seconds after the first."""
    fields: dict[str, Any] = {
        "started_ns": STARTED_NS + turns * 1_000_000_000,
        "request": Request(
            method="POST", url="https://api.anthropic.com/v1/messages?beta=true", headers=(("X-Api-Key", "***:f00d"),), body=body_of(turns)
        ),
        "sent_ns": 5,
        "response": Response(
            status=200,
            headers=(("Content-Type", "text/event-stream"),),
            headers_at_ns=10,
            arrivals=(Arrival(20, b"data: one\n\n"), Arrival(30, b"data: two %d\n\n" % turns)),
        ),
        "ended_ns": 40,
    }
    return Exchange(**(fields | changes))


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    """A new trace, closed in the end."""
    with Trace.open(tmp_path / "test.trace", create=True) as opened:
        yield opened


@pytest.fixture
def make_body() -> Callable[..., bytes]:
    """`body_of`."""
    return body_of


@pytest.fixture
def make_exchange() -> Callable[..., Exchange]:
    """`exchange_of`."""
    return exchange_of
