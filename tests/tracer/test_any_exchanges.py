"""Any bytes in any order: whole exchanges of every kind go through the reader and identity, and nothing is raised."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.records import Arrival, Exchange, ExchangeId, Failure, FailureKind, Headers, Origin, Request, Response, Transport
from tracer.identity import Cut, Identity, Merge
from tracer.prompts import prompt_of
from tracer.sightings import sighted

_PATHS = """
    /v1/messages /v1/messages/count_tokens /v1/chat/completions /v1/responses /v1/responses/compact
    /v1beta/models/m:streamGenerateContent /v1beta/models/m:countTokens /s/label/v1/messages /other
"""
PATHS = st.sampled_from(_PATHS.split())
_KEYS = """
    type role content text messages input contents parts tools system instructions tool_calls function name arguments id call_id
    call function_call function_call_output tool_use tool_result tool_use_id tool_call_id functionCall functionResponse args
    response output choices delta message candidates item data source media_type mimeType inlineData image_url url
    prompt_cache_key previous_response_id metadata user_id session_id client_metadata x-codex-turn-metadata thread
    previous_message_id diagnostics generate model stream tool_choice response_format schema properties title encrypted_content
    signature usage input_tokens finish_reason stop_reason error
"""
KEYS = st.sampled_from(_KEYS.split())
_WORDS = """
    user assistant system tool developer model function message reasoning compaction compaction_trigger text image base64 none
    call_0123456789 toolu_0123456789 Agent spawn_agent task response.create response.completed message_start content_block_delta
"""
WORDS = st.sampled_from(_WORDS.split()) | st.sampled_from(
    (
        "Count all the files below here", "Generate a title for this conversation:", '{"session_id": "0123456789"}', "[DONE]",
        "data:image/png;base64,AAAA",
        "The connection dropped mid-response. Resume directly", "AAAAAAAAAAAAAAAAAAAAAAAA", "\\ud800", "\x00", "",
    )
)  # fmt: skip
ODD = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=6)
VALUES = st.recursive(ODD, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=30)
BODIES = st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()) | st.dictionaries(KEYS, VALUES, max_size=6).map(
    lambda value: json.dumps(value).encode()
)  # fmt: skip
_HEADER_NAMES = """
    user-agent session-id x-session-id x-parent-session-id thread-id x-claude-code-session-id x-claude-code-agent-id
    x-claude-code-parent-agent-id x-claude-code-request-class x-claude-code-prev-tool-durations x-codex-turn-metadata
    x-openai-subagent x-codex-parent-thread-id x-interaction-type x-initiator x-stainless-retry-count content-encoding
    x-litellm-session-id
"""
HEADER_NAMES = st.sampled_from(_HEADER_NAMES.split())
_HEADER_VALUES = (
    "a/b", "main", "0123456789", "Bash=1,Read=x,=,Agent=9999999999999", '{"session_id": {}, "thread_id": "t"}', "gzip", "subagent", "{",
    "***", "",
)  # fmt: skip
HEADER_VALUES = st.sampled_from(_HEADER_VALUES)
HEADERS: st.SearchStrategy[Headers] = st.lists(st.tuples(HEADER_NAMES, HEADER_VALUES), max_size=5).map(tuple)


EVENTS = BODIES.map(lambda body: b"data: " + body + b"\n\n")
LINES = BODIES.map(lambda body: body + b"\n")


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    """One request and what came of it, meaningful or not."""
    request = Request(
        method=draw(st.sampled_from(("POST", "GET"))), url="http://h" + draw(PATHS), headers=draw(HEADERS), body=draw(BODIES)
    )  # fmt: skip
    pieces = draw(
        st.lists(BODIES | BODIES.map(lambda body: b"data: " + body + b"\n\n") | BODIES.map(lambda body: body + b"\n"), max_size=3)
    )
    kind = draw(st.sampled_from(("application/json", "text/event-stream", "text/html")))
    status = draw(st.sampled_from((101, 200, 200, 200, 429, 529)))
    arrivals = tuple(Arrival(place, piece) for place, piece in enumerate(pieces))
    response = Response(status=status, headers=(("content-type", kind),), headers_at_ns=0, arrivals=arrivals)
    failure = draw(st.none() | st.sampled_from(FailureKind).map(lambda why: Failure(kind=why, message="x", at_ns=1)))
    return Exchange(
        started_ns=draw(st.integers(0, 20)) * 10**9,
        request=request,
        response=draw(st.just(response) | st.none()),
        failure=failure,
        ended_ns=draw(st.integers(0, 5)) * 10**9,
        transport=draw(st.sampled_from(Transport)),
        origin=Origin(client_pid=draw(st.none() | st.integers(1, 2)), label=draw(st.none() | st.just("run"))),
    )


VERDICTS = (Merge(session="a/b", into="0123456789"), Cut(session="0123456789", into="new", from_ns=5 * 10**9, exchange=ExchangeId(3)))


@settings(max_examples=150)
@given(some=st.lists(exchanges(), max_size=7), decided=st.booleans())
def test_any_exchanges_in_any_order_are_placed(some: list[Exchange], decided: bool) -> None:
    """Each gets a place; what it is made of can be written down; places only name exchanges that there are."""
    identity = Identity(verdicts=VERDICTS if decided else ())
    placed: set[int] = set()
    for number, exchange in enumerate(some, 1):
        found = replace(exchange, id=ExchangeId(number))
        read = sighted(found, prompt_of(found))
        repr(read.reading).encode("utf-8", "surrogatepass")
        if read.sighting is not None:
            place = identity.place(read.sighting).placement
            placed.add(number)
            assert set(place.after) <= placed
            assert place.session_key
            assert place.thread_key
            assert place.number >= 1
    _check(identity.corrections(), placed)


def _check(corrections: list[Any], placed: set[int]) -> None:
    assert {place.exchange_id for place in corrections} <= placed
