"""The simulated server over a WebSocket: the events of a stream as messages, what the connection holds, prewarms, refusals, the truth."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from simulated import FAST, post, running
from websocket_ends import CLOSE, PING, closing, create
from websocket_talk import Talk

from replay.simulator.prepare import Settings
from tracer.frames import Opcode

COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOL = {"type": "function", "name": "shell", "description": "Runs a command.", "parameters": COMMAND}


@pytest.fixture
def talk() -> Iterator[Talk]:
    with running() as port:
        found = Talk(f"http://127.0.0.1:{port}")
        yield found
        found.client.socket.close()


def usage(said: list[dict[str, Any]]) -> tuple[int, int, int]:
    """Prompt, cached and output tokens."""
    told = said[-1]["response"]["usage"]
    return told["input_tokens"], told["input_tokens_details"]["cached_tokens"], told["output_tokens"]


@pytest.mark.parametrize("deflates", [False, True])
def test_a_conversation(tmp_path: Path, deflates: bool) -> None:
    """Prewarm, turn, turn: each goes on from what is held, and the prompt is the one that HTTP sends whole; the log names the messages."""
    truth = tmp_path / "truth.jsonl"
    with running(replace(FAST, truth=truth)) as port:
        talk = Talk(f"http://127.0.0.1:{port}", deflates=deflates)
        words = "go on " * 200
        warm_text = create(1, input=[], generate=False, instructions=words, tools=[TOOL])
        warm = talk.ask(warm_text)
        first_text = create(1, before=warm[-1]["response"]["id"], text="first", tools=[TOOL], instructions=words)
        first = talk.ask(first_text)
        second = talk.ask(create(1, before=first[-1]["response"]["id"], text="second"))
        items = [json.loads(first_text)["input"][0], *first[-1]["response"]["output"], json.loads(create(1, text="second"))["input"][0]]
        whole = {"model": "gpt-5", "instructions": words, "tools": [TOOL], "input": items, "stream": False}
        told = json.loads(post(port, "/v1/responses", whole)[2][0])["usage"]
        talk.client.reset()
    rows = [json.loads(line) for line in truth.read_text().splitlines()]
    assert [each["type"] for each in warm] == ["response.created", "response.in_progress", "response.completed"]
    assert (usage(warm)[1:], warm[-1]["response"]["output"]) == ((0, 0), [])
    assert [each["sequence_number"] for each in first] == list(range(len(first)))
    assert usage(first)[1] == usage(warm)[0] // 16 * 16
    assert usage(second)[1] >= usage(first)[0] // 16 * 16
    assert usage(second)[0] == told["input_tokens"]
    assert [row["request_sha256"] for row in rows[:2]] == [sha256(warm_text).hexdigest(), sha256(first_text).hexdigest()]
    assert [(row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) for row in rows[:3]] == [*map(usage, (warm, first, second))]
    assert all(row["chunk_ns"][-1] - row["whole_ns"] >= 1_000_000 for row in rows[:3])


def test_refusals_are_messages(talk: Talk) -> None:
    """An answer that is not held, no JSON, another message, no input: an error that names its status, and the socket goes on."""
    texts = [create(1, before="resp_x"), b"hello", b'{"type":"response.cancel"}', b'{"type":"response.create","model":"m"}', b"[1]"]
    said = [talk.ask(text)[-1] for text in texts]
    assert [(each["type"], each["status"]) for each in said] == [("error", 400)] * 5
    assert said[0]["error"]["code"] == "previous_response_not_found"
    assert talk.ask(create(1))[-1]["type"] == "response.completed"


def test_requests_are_answered_one_after_the_other(talk: Talk) -> None:
    """Two at once: the second's first word follows the first's last."""
    talk.client.say(create(1))
    called = [each["type"] for each in (*talk.ask(create(1, text="other")), *talk.rest())]
    assert [each for each in called if each in ("response.created", "response.completed")] == ["response.created", "response.completed"] * 2


def test_pings_and_the_end(talk: Talk) -> None:
    """A ping has its pong, a close frame its own."""
    talk.client.say(b"there?", PING)
    assert (pong := talk.hear()).opcode is Opcode.PONG
    assert pong.payload == b"there?"
    talk.client.say(closing(1000), CLOSE)
    assert talk.hear().opcode is Opcode.CLOSE
    assert talk.client.wait_for_end() == b""


def test_frames_that_are_none_end_the_socket(talk: Talk) -> None:
    """With a close frame that says why."""
    talk.client.socket.sendall(b"\xff\xff\xff\xff\xff\xff")
    assert talk.client.wait_for_end()[2:4] == (1002).to_bytes(2)


def test_a_client_that_leaves_is_noted(tmp_path: Path) -> None:
    """As over HTTP: what was sent by then."""
    truth = tmp_path / "truth.jsonl"
    slow = Settings(timing=replace(FAST.timing, decode_tps=5), truth=truth, script="plain")
    with running(slow) as port:
        talk = Talk(f"http://127.0.0.1:{port}")
        talk.client.say(create(1))
        while json.loads(talk.hear().payload)["type"] != "response.output_text.delta":
            pass
        talk.client.reset()
        while not truth.read_text():
            pass
    (row,) = [json.loads(line) for line in truth.read_text().splitlines()]
    assert row["client_left"]
    assert 0 < row["output_tokens"] < 40


@pytest.mark.parametrize(
    ("websocket", "key", "line", "status"),
    [
        (False, None, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"426"),
        (True, None, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"101"),
        (True, "k", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"401"),
        (True, None, "X-Nothing: 1", b"400"),
    ],
)
def test_what_a_handshake_is_answered(websocket: bool, key: str | None, line: str, status: bytes) -> None:
    """Refused where there is none, where the key is wrong, and where it is no handshake."""
    lines = ["GET /v1/responses HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", line]
    with running(replace(FAST, websocket=websocket, api_key=key)) as port, socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        assert connection.recv(65536).split(b" ")[1] == status
