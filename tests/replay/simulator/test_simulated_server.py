"""The simulated server over raw sockets: all dialects as their readers see them, the cache in usage, times, errors, truth, metrics."""

import asyncio
import gzip
import hashlib
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulated import FAST, ask, head, post, read_answer, running

from replay.simulator.prepare import Settings
from replay.simulator.server import serve_until
from replay.simulator.timing import Timing
from storage.errors import PlayheadError
from storage.records import Arrival, Exchange, Request, Response
from tracer import wire
from tracer.wire.contract import Call, Text, ToolCall

WORDS = "alpha beta gamma delta " * 60


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running() as found:
        yield found


def call_of(target: str, body: Any, answer: tuple[int, dict[str, str], list[bytes]]) -> Call:
    """The answer as the recorder's reader understands it."""
    status, headers, chunks = answer
    request = Request(method="POST", url=f"http://x{target}", headers=(), body=json.dumps(body).encode())
    arrivals = tuple(Arrival(at, data) for at, data in enumerate(chunks))
    response = Response(status=status, headers=tuple(headers.items()), headers_at_ns=0, arrivals=arrivals)
    found = wire.read(Exchange(started_ns=0, request=request, response=response, ended_ns=99))
    assert found is not None
    return found[1]


BASH = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def requests(*, stream: bool, tools: bool, salt: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """One request in each dialect; `salt` at the head of tools and message keeps them from sharing a block with others."""
    text = f"{salt} {WORDS}"
    user = [{"role": "user", "content": text}]
    offered = [{"name": "bash", "description": salt, "input_schema": BASH}] if tools else []
    chat = [{"type": "function", "function": {"name": "bash", "description": salt, "parameters": BASH}}] if tools else []
    flat = [{"type": "function", "name": "bash", "description": salt, "parameters": BASH}] if tools else []
    declared = [{"functionDeclarations": [{"name": "bash", "description": salt, "parametersJsonSchema": BASH}]}] if tools else []
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    usage = {"stream_options": {"include_usage": True}} if stream else {}
    return {
        "anthropic_messages": ("/v1/messages", {"model": "m", "max_tokens": 900, "messages": user, "tools": offered, "stream": stream}),
        "openai_chat": ("/v1/chat/completions", {"model": "m", "messages": user, "tools": chat, "stream": stream, **usage}),
        "openai_responses": ("/v1/responses", {"model": "m", "input": user, "tools": flat, "stream": stream}),
        "gemini": (f"/v1beta/models/m:{method}", {"contents": [{"role": "user", "parts": [{"text": text}]}], "tools": declared}),
    }


ALL = ("anthropic_messages", "openai_chat", "openai_responses", "gemini")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", ALL)
def test_a_tool_call_reads_back(port: int, dialect: str, stream: bool) -> None:
    """Words and a call of the agent's own shell, whole, with usage, in each dialect, streamed and not."""
    target, body = requests(stream=stream, tools=True, salt=f"{dialect}{stream}")[dialect]
    call = call_of(target, body, post(port, target, body))
    assert call.ended
    assert [part for part in call.reply if isinstance(part, Text)] == [Text("I will look around first.")]
    (made,) = [part for part in call.reply if isinstance(part, ToolCall)]
    assert (made.name, json.loads(made.arguments)) == ("bash", {"command": "pwd && ls"})
    assert (call.usage.cached, call.usage.output) == (0, 13)
    assert call.usage.prompt is not None
    assert call.usage.prompt > 240


@pytest.mark.parametrize("dialect", ALL)
def test_the_second_time_whole_blocks_are_reported_as_cached(port: int, dialect: str) -> None:
    """The prefix cache works and is told in each dialect's own field; the prompt counts as much as before."""
    target, body = requests(stream=True, tools=False, salt=f"twice {dialect}")[dialect]
    first, second = (call_of(target, body, post(port, target, body)).usage for _ in range(2))
    assert first.prompt == second.prompt
    assert first.prompt is not None
    assert (first.cached, second.cached) == (0, (first.prompt - 1) // 16 * 16)
    assert second.output == 40


def test_an_answer_sent_back_is_reused(port: int) -> None:
    """The template shows an answer as the next request carries it, so blocks of generated tokens are hit too."""
    target, body = requests(stream=True, tools=False, salt="grows")["openai_chat"]
    first = call_of(target, body, post(port, target, body))
    (said,) = first.reply
    assert isinstance(said, Text)
    body["messages"] += [{"role": "assistant", "content": said.text}, {"role": "user", "content": "go on"}]
    second = call_of(target, body, post(port, target, body)).usage
    assert first.usage.prompt is not None
    assert second.cached is not None
    assert second.cached > first.usage.prompt


def test_salt_and_reset_make_a_prompt_cold_again(port: int) -> None:
    """`cache_salt` isolates; `POST /reset_prefix_cache` empties."""
    target, body = requests(stream=False, tools=False, salt="salted")["openai_chat"]
    cached = [call_of(target, asked, post(port, target, asked)).usage.cached for asked in (body, {**body, "cache_salt": "s"}, body)]
    assert cached[:2] == [0, 0]
    assert cached[2]
    assert post(port, "/reset_prefix_cache", {})[0] == 200
    assert call_of(target, body, post(port, target, body)).usage.cached == 0


@pytest.mark.parametrize(
    ("dialect", "field"),
    [("anthropic_messages", "max_tokens"), ("openai_chat", "max_completion_tokens"), ("openai_responses", "max_output_tokens")],
)
def test_limits_are_kept(port: int, dialect: str, field: str) -> None:
    """Cut at the limit and said so."""
    target, body = requests(stream=True, tools=False, salt=f"cut {dialect}")[dialect]
    call = call_of(target, body, post(port, target, {**body, field: 5}))
    assert call.usage.output == 5
    assert call.stop in ("max_tokens", "length", "max_output_tokens", "incomplete")
    assert call.ended


def test_a_call_that_is_cut_in_its_arguments(port: int) -> None:
    """Anthropic unstreamed: the partial text is carried; Gemini: a call that is not whole is not sent."""
    target, body = requests(stream=False, tools=True, salt="cut call")["anthropic_messages"]
    answer = json.loads(post(port, target, {**body, "max_tokens": 8})[2][0])
    assert answer["stop_reason"] == "max_tokens"
    assert answer["content"][1]["input"] == {"partial": '{"command'}
    for stream in (True, False):
        target, body = requests(stream=stream, tools=True, salt="cut gemini")["gemini"]
        call = call_of(target, body, post(port, target, {**body, "generationConfig": {"maxOutputTokens": 8}}))
        assert [type(part) for part in call.reply] == [Text]
        assert call.usage.output == 8


def test_more_tokens_than_the_script_has(port: int) -> None:
    """`min_tokens` and `ignore_eos` are obeyed, as vLLM does, for replays of recorded length."""
    target, body = requests(stream=True, tools=False, salt="long")["openai_chat"]
    for more, expected in (({"max_tokens": 77, "ignore_eos": True}, 77), ({"min_tokens": 60, "max_tokens": 61}, 61)):
        call = call_of(target, {**body, **more}, post(port, target, {**body, **more}))
        assert call.usage.output == expected


def test_gemini_without_sse_streams_an_array(port: int) -> None:
    """Without `alt=sse` the chunks together are one JSON array."""
    body = requests(stream=True, tools=False, salt="array")["gemini"][1]
    chunks = post(port, "/v1beta/models/m:streamGenerateContent", body)[2]
    documents = json.loads(b"".join(chunks))
    assert len(documents) == 40
    assert documents[-1]["usageMetadata"]["candidatesTokenCount"] == 40


def test_a_chat_stream_reports_usage_only_when_asked(port: int) -> None:
    """As the provider does."""
    target, body = requests(stream=True, tools=False, salt="silent")["openai_chat"]
    del body["stream_options"]
    answer = post(port, target, body)
    assert b'"usage"' not in b"".join(answer[2])
    assert call_of(target, body, answer).usage.prompt is None


def test_token_counts(port: int) -> None:
    """Counting takes nothing into the cache, and says the same as usage."""
    target, body = requests(stream=False, tools=True, salt="count")["anthropic_messages"]
    counted = json.loads(post(port, "/v1/messages/count_tokens", body)[2][0])["input_tokens"]
    usage = call_of(target, body, post(port, target, body)).usage
    assert (usage.prompt, usage.cached) == (counted, 0)
    gemini = requests(stream=False, tools=False, salt="count")["gemini"][1]
    assert json.loads(post(port, "/v1beta/models/m:countTokens", gemini)[2][0])["totalTokens"] > 200
    chat = requests(stream=False, tools=True, salt="count")["openai_chat"][1]
    tokenized = json.loads(post(port, "/tokenize", chat)[2][0])
    assert tokenized["count"] == len(tokenized["tokens"]) > 200
    assert json.loads(post(port, "/tokenize", {"prompt": "hello world"})[2][0])["tokens"] == [24912, 2375]


def test_the_servers_own_pages(port: int) -> None:
    """Health, models, metrics; an upgrade to what it does not have is refused so that clients fall back to HTTP."""
    assert ask(port, head("GET", "/health"))[0] == 200
    assert json.loads(ask(port, head("GET", "/v1/models"))[2][0])["data"][0]["id"] == "simulated"
    assert json.loads(ask(port, head("GET", "/v1beta/models"))[2][0])["models"][0]["name"] == "models/simulated"
    status, headers, _ = ask(port, head("GET", "/metrics"))
    assert (status, headers["content-type"].split(";")[0]) == (200, "text/plain")
    assert ask(port, head("GET", "/v1/realtime", b"", "Upgrade: websocket", "Connection: Upgrade"))[0] == 426
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(head("HEAD", "/", b"", "Connection: close"))
        assert connection.recv(9999).endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("target", "where", "expected"),
    [("/v1/messages", ("error", "type"), "invalid_request_error"), ("/v1/chat/completions", ("error", "type"), "invalid_request_error"),
     ("/v1/responses", ("error", "type"), "invalid_request_error"),
     ("/v1beta/models/m:generateContent", ("error", "status"), "INVALID_ARGUMENT")],
)  # fmt: skip
def test_bad_bodies_get_the_dialects_own_error(port: int, target: str, where: tuple[str, str], expected: str) -> None:
    """What is no JSON, no object, or has no messages is 400."""
    for body in (b"{nothing", b"[1]", b"{}"):
        status, _, chunks = ask(port, head("POST", target, body))
        told = json.loads(chunks[0])
        assert status == 400
        assert told[where[0]][where[1]] == expected
    assert ask(port, head("POST", target, b"no gzip", "Content-Encoding: gzip"))[0] == 400


def test_unknown_paths_are_404_in_the_likely_shape(port: int) -> None:
    """OpenAI's shape, or Gemini's under its prefix; nothing bad comes of a broken tokenize either."""
    assert json.loads(post(port, "/v1/nothing", {})[2][0])["error"]["code"] == "unknown_url"
    assert json.loads(post(port, "/v1beta/nothing", {})[2][0])["error"]["status"] == "NOT_FOUND"
    assert ask(port, head("POST", "/tokenize", b"x"))[0] == 400
    assert ask(port, head("POST", "/tokenize", b"[]"))[0] == 400


def test_compressed_requests_are_read(port: int) -> None:
    """gzip, as Claude Code sends; the digest in the truth is of the bytes on the wire."""
    target, body = requests(stream=False, tools=False, salt="zip")["anthropic_messages"]
    packed = gzip.compress(json.dumps(body).encode())
    assert ask(port, head("POST", target, packed, "Content-Encoding: gzip"))[0] == 200


def test_requests_may_come_in_any_pieces_and_before_their_turn(port: int) -> None:
    """Byte by byte at the head, chunked, and several on one connection before the first was answered."""
    target, body = requests(stream=True, tools=False, salt="piped")["openai_chat"]
    data = json.dumps(body).encode()
    chunked = f"POST {target} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{len(data):x}\r\n".encode() + data + b"\r\n0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 10) as connection, connection.makefile("rb") as stream:
        for at in range(20):
            connection.sendall(chunked[at : at + 1])
        connection.sendall(chunked[20:] + head("POST", target, data) + head("GET", "/health"))
        answers = [read_answer(stream) for _ in range(3)]
    assert [status for status, _, _ in answers] == [200, 200, 200]
    usages = [call_of(target, body, answer).usage for answer in answers[:2]]
    assert usages[0].cached == 0
    assert usages[1].cached
    assert b"ok" in answers[2][2][0]


def test_a_waiting_client_is_told_to_go_on(port: int) -> None:
    """Expect: 100-continue."""
    target, body = requests(stream=False, tools=False, salt="wait")["openai_chat"]
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", port), 10) as connection, connection.makefile("rb") as stream:
        connection.sendall(
            head("POST", target, b"", "Expect: 100-continue").replace(b"Content-Length: 0", f"Content-Length: {len(data)}".encode())
        )
        assert b"100" in stream.readline()
        stream.readline()
        connection.sendall(data)
        assert read_answer(stream)[0] == 200


def test_what_is_no_http_is_answered_400_and_closed(port: int) -> None:
    """And a client that closes its side before asking is let go."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection, connection.makefile("rb") as stream:
        connection.sendall(b"\x16\x03\x01 not http\r\n\r\n")
        assert b"400" in stream.readline()
        assert b"close" in stream.read()
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(10) == b""


# ---- servers of their own settings ---------------------------------------------------------------------------------


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_truth_tells_tokens_and_times(tmp_path: Path) -> None:
    """One line a request; pieces in order, none before it was due, the first content after the prefill of what was not cached."""
    truth = tmp_path / "truth.jsonl"
    timing = Timing(fixed_ns=20_000_000, prefill_tps=10_000, decode_tps=500)
    target, body = requests(stream=True, tools=False, salt="truth")["anthropic_messages"]
    with running(replace(FAST, timing=timing, truth=truth, output_tokens=10)) as port:
        answers = [post(port, target, body) for _ in range(2)]
        post(port, target, {**body, "stream": False})
        post(port, target, {})
    cold, warm, whole, refused = rows(truth)
    assert truth.stat().st_mode & 0o777 == 0o600
    assert cold["request_sha256"] == hashlib.sha256(json.dumps(body).encode()).hexdigest()
    assert (cold["dialect"], cold["model"], cold["status"], cold["output_tokens"]) == ("anthropic_messages", "m", 200, 10)
    assert (cold["cached_tokens"], warm["cached_tokens"]) == (0, (cold["prompt_tokens"] - 1) // 16 * 16)
    for row, answer in ((cold, answers[0]), (warm, answers[1])):
        due = row["whole_ns"] + timing.first_token_ns(row["prompt_tokens"] - row["cached_tokens"])
        assert row["received_ns"] <= row["whole_ns"] < due <= row["first_token_ns"]
        assert row["chunk_ns"] == sorted(row["chunk_ns"])
        assert len(row["chunk_ns"]) == len(answer[2])
        assert row["chunk_ns"][-1] >= row["whole_ns"] + timing.token_ns(row["prompt_tokens"] - row["cached_tokens"], 9)
    assert whole["chunk_ns"] == [whole["first_token_ns"]]
    assert (refused["status"], refused["prompt_tokens"], refused["first_token_ns"]) == (400, None, None)


def test_a_client_that_leaves_is_in_the_truth(tmp_path: Path) -> None:
    """With what it was sent; and the cache keeps what was computed for it."""
    truth = tmp_path / "truth.jsonl"
    target, body = requests(stream=True, tools=False, salt="leaves")["openai_chat"]
    with running(replace(FAST, timing=Timing(fixed_ns=1000, prefill_tps=1e7, decode_tps=50), truth=truth)) as port:
        with socket.create_connection(("127.0.0.1", port), 10) as connection, connection.makefile("rb") as stream:
            connection.sendall(head("POST", target, json.dumps(body).encode()))
            while b'"content":"' not in (line := stream.readline()) or b'"content":""' in line:
                pass
        short = {**body, "max_tokens": 1}
        assert call_of(target, short, post(port, target, short)).usage.cached
    left = next(row for row in rows(truth) if row["client_left"])
    assert 1 <= left["output_tokens"] < 40


def test_a_client_that_leaves_before_the_first_token_leaves_no_blocks(tmp_path: Path) -> None:
    """Its prefill had not ended. The server is stopped while another is being served."""
    truth = tmp_path / "truth.jsonl"
    target, body = requests(stream=True, tools=False, salt="early")["openai_chat"]
    with running(replace(FAST, timing=Timing(fixed_ns=30 * 10**9, prefill_tps=1e7, decode_tps=50), truth=truth)) as port:
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), 10) as connection, connection.makefile("rb") as stream:
                connection.sendall(head("POST", target, json.dumps(body).encode()))
                assert b"200" in stream.readline()
    assert [(row["cached_tokens"], row["output_tokens"], row["first_token_ns"]) for row in rows(truth)] == [(0, 0, None)] * 2


def test_a_server_that_does_not_report(tmp_path: Path) -> None:
    """Usage has no cached tokens at all, in no dialect, while the truth has them."""
    truth = tmp_path / "truth.jsonl"
    with running(replace(FAST, reports_cached=False, truth=truth)) as port:
        for target, body in requests(stream=True, tools=False, salt="quiet").values():
            usages = [call_of(target, body, post(port, target, body)).usage for _ in range(2)]
            assert [usage.cached for usage in usages] == [None, None]
            assert usages[0].prompt == usages[1].prompt
    assert all(row["cached_tokens"] > 200 for row in rows(truth)[1::2])


def test_metrics_add_up() -> None:
    """Prompt tokens by source sum to the prompt tokens; what is cached is what usage said; the cache's fill is a share."""
    target, body = requests(stream=False, tools=False, salt="counted")["openai_chat"]
    with running(replace(FAST, capacity_tokens=1600)) as port:
        usages = [call_of(target, body, post(port, target, body)).usage for _ in range(3)]
        post(port, target, {})
        page = ask(port, head("GET", "/metrics"))[2][0].decode()
    values = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if not line.startswith("#")}
    assert values["vllm:prompt_tokens_total"] == sum(usage.prompt or 0 for usage in usages)
    assert values["vllm:prompt_tokens_cached_total"] == sum(usage.cached or 0 for usage in usages) > 0
    sources = [value for name, value in values.items() if name.startswith("vllm:prompt_tokens_by_source_total{")]
    assert sum(sources) == values["vllm:prompt_tokens_total"]
    assert values["vllm:generation_tokens_total"] == sum(usage.output or 0 for usage in usages)
    assert values['playhead_simulator_requests_total{status="200"}'] == 3
    assert values['playhead_simulator_requests_total{status="400"}'] == 1
    assert values["vllm:kv_cache_usage_perc"] == values["playhead_simulator_kv_tokens"] / 1600


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        ("sglang", ("sglang:cached_tokens_total", "sglang:token_usage")),
        ("llama_cpp", ("llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total")),
    ],
)
def test_other_rules_have_other_names_and_blocks(rules: str, names: tuple[str, ...]) -> None:
    """Block 1: all but the last token of a repeated prompt is cached."""
    target, body = requests(stream=False, tools=False, salt=rules)["openai_chat"]
    with running(replace(FAST, rules=rules, block_tokens=1)) as port:
        first, second = (call_of(target, body, post(port, target, body)).usage for _ in range(2))
        page = ask(port, head("GET", "/metrics"))[2][0].decode()
    assert first.prompt is not None
    assert second.cached == first.prompt - 1
    for name in names:
        assert f"\n{name} " in page


def test_keys_models_and_contexts_are_checked(tmp_path: Path) -> None:
    """Each refusal in its dialect's shape, and in the truth."""
    truth = tmp_path / "truth.jsonl"
    with running(replace(FAST, api_key="k-1", model="m", context_tokens=300, truth=truth)) as port:
        target, body = requests(stream=True, tools=False, salt="")["anthropic_messages"]
        wrong = post(port, target, body, "X-Api-Key: other")
        assert (wrong[0], json.loads(wrong[2][0])["error"]["type"]) == (401, "authentication_error")
        assert [post(port, target, body, line)[0] for line in ("X-Api-Key: k-1", "Authorization: Bearer k-1", "x-goog-api-key: k-1")] == [
            200
        ] * 3
        assert post(port, f"{target}?key=k-1", body)[0] == 200
        missing = post(port, target, {**body, "model": "n"}, "X-Api-Key: k-1")
        assert (missing[0], json.loads(missing[2][0])["error"]["type"]) == (404, "not_found_error")
        target, body = requests(stream=True, tools=False, salt=WORDS)["openai_chat"]
        long = post(port, target, body, "Authorization: Bearer k-1")
        assert (long[0], json.loads(long[2][0])["error"]["code"]) == (400, "context_length_exceeded")
    assert [row["status"] for row in rows(truth)] == [401, 200, 200, 200, 200, 404, 400]


def test_failures_are_the_same_in_every_run() -> None:
    """`--fail` with one seed refuses the same requests, as overloaded."""
    seen = []
    for _ in range(2):
        with running(replace(FAST, fail_rate=0.5, seed=3)) as port:
            asked = requests(stream=False, tools=False, salt="f")
            seen.append([post(port, *asked[name])[0] for name in ("openai_chat", "anthropic_messages") * 6])
    assert seen[0] == seen[1]
    assert {200, 503, 529} == set(seen[0])


def test_addresses_that_cannot_be_had(tmp_path: Path) -> None:
    """Not of this machine, taken, no such port, a truth file that cannot be: a line with a hint."""

    def start(host: str, port: int, settings: Settings = FAST) -> None:
        asyncio.run(serve_until(asyncio.Event(), settings, (host, port), lambda _: None))

    for host in ("0.0.0.0", "example.org"):
        with pytest.raises(PlayheadError, match="this machine only"):
            start(host, 0)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(PlayheadError, match="in use") as told:
        start("127.0.0.1", taken.getsockname()[1])
    assert told.value.hint
    with pytest.raises(PlayheadError, match="no port 99999"):
        start("127.0.0.1", 99_999)
    with pytest.raises(PlayheadError, match="truth file"):
        start("127.0.0.1", 0, replace(FAST, truth=tmp_path / "no" / "folder"))
