"""Small hand-made conversations as exchanges, placed without a store: `import identity_traffic`.

The Chat dialect, since it carries no ids of its own; `Wire` keeps the time and gives each exchange its id.
"""

import json
from dataclasses import replace
from typing import Any

from storage.records import Arrival, Exchange, ExchangeId, Failure, FailureKind, Headers, Origin, Request, Response
from tracer.identity import Identity, Trail
from tracer.prompts import prompt_of
from tracer.sightings import Sighted, sighted

SECOND_NS = 1_000_000_000
START_NS = 1_760_000_000 * SECOND_NS

type Message = dict[str, Any]


def user(text: str) -> Message:
    """What the user says."""
    return {"role": "user", "content": text}


def system(text: str) -> Message:
    """Instructions."""
    return {"role": "system", "content": text}


def assistant(text: str) -> Message:
    """What the model says."""
    return {"role": "assistant", "content": text}


def calls(*wanted: tuple[str, str, dict[str, Any]]) -> Message:
    """Tool calls of the model: (id, name, arguments)."""
    made = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for call_id, name, arguments in wanted
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call_id: str, text: str) -> Message:
    """What a tool gave back."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


class Wire:
    """Makes exchanges one after the other, and places each."""

    def __init__(self, identity: Identity | None = None) -> None:
        self.identity = identity or Identity()
        self.now_s = 0.0
        self.last = 0
        self.client = "bench/1"

    def exchange(self, talk: list[Message], answer: Message | None, *, takes_s: float = 1.0, **more: Any) -> Exchange:
        """One request and its answer. `more`: headers, fields (of the body), status, failure, pid, at_s, path."""
        started_s = more.get("at_s", self.now_s)
        self.now_s = max(self.now_s, started_s + takes_s) if "at_s" not in more else self.now_s
        self.last += 1
        headers: Headers = (("user-agent", more.get("client", self.client)), *more.get("headers", ()))
        body = json.dumps({"model": "m", "messages": talk} | more.get("fields", {})).encode()
        return Exchange(
            id=ExchangeId(self.last),
            started_ns=START_NS + round(started_s * SECOND_NS),
            request=Request(method="POST", url=f"http://model.test{more.get('path', '/v1/chat/completions')}", headers=headers, body=body),
            sent_ns=1000,
            response=_response(answer, more.get("status", 200)),
            failure=more.get("failure"),
            ended_ns=round(takes_s * SECOND_NS),
            origin=Origin(client_pid=more.get("pid"), label=more.get("label")),
        )

    def read(self, exchange: Exchange) -> Sighted:
        """The exchange as the reader reads it."""
        return sighted(exchange, prompt_of(exchange))

    def say(self, talk: list[Message], answer: Message | None, **more: Any) -> Trail:
        """One request and its answer, placed."""
        found = self.read(self.exchange(talk, answer, **more)).sighting
        assert found is not None
        return self.identity.place(found)


def _response(answer: Message | None, status: int) -> Response | None:
    if answer is None:
        return None
    document = {"choices": [{"message": answer, "finish_reason": "stop"}]} if status == 200 else {"error": {"message": "no"}}
    data = json.dumps(document).encode()
    headers = (("content-type", "application/json"),)
    return Response(status=status, headers=headers, headers_at_ns=2000, arrivals=(Arrival(3000, data),))


def cut(kind: FailureKind = FailureKind.SERVER_CUT) -> Failure:
    """How an exchange was cut."""
    return Failure(kind=kind, message=kind.value, at_ns=1000)


def without_answer(exchange: Exchange) -> Exchange:
    """The same, no head having come."""
    return replace(exchange, response=None)
