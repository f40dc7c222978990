"""The agent that `playhead demo` records: a small coding agent that calls tools and starts a sub-agent, over Anthropic Messages.

A program of its own on the standard library, like any agent it knows nothing of Playhead. It runs the commands its model asks for, in
a temporary folder: it is made to be used with `playhead simulate` only.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data import topics
from typing import Any
from urllib.parse import urlsplit

MODEL = "demo-model"
STYLE = "formatstrings"
SHORTEST_NOTES, LONGEST_NOTES = 5_000, 7_000
LONGEST_RESULT = 4_000
MOST_TURNS = 12
TOOL_LIMIT_S = 20
READING_PAUSE_S = 0.15
"""How long the user reads an answer before asking on."""

STRING = {"type": "string"}
TOOLS = (
    {
        "name": "bash",
        "description": "Runs a command in the project folder and returns what it prints. Use it to look around and to run programs.",
        "input_schema": {"type": "object", "properties": {"command": STRING}, "required": ["command"]},
    },
    {
        "name": "write",
        "description": "Writes a file of the project; an existing one is replaced. A reviewer then reads it and its opinion is returned.",
        "input_schema": {"type": "object", "properties": {"file_path": STRING, "content": STRING}, "required": ["file_path", "content"]},
    },
    {
        "name": "read",
        "description": "Returns the text of a file of the project.",
        "input_schema": {"type": "object", "properties": {"file_path": STRING}, "required": ["file_path"]},
    },
)
RULES = (
    "You are a coding agent. Work in small steps: look, write, run, check. Use the tools; do not describe what you could do with them. "
    "Never leave the project folder. Answer in one or two sentences when the task is done.\n\nFor reference, on formatting:\n\n"
)
REVIEWER_RULES = "You review one file of a project. Read it with the tool, then say in one sentence whether it does what it should."


@dataclass(slots=True)
class Agent:
    """One conversation with the model, and the project it works in."""

    url: str
    session: str
    folder: Path
    system: str
    tools: tuple[dict[str, Any], ...]
    parent: str | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)

    def work(self, prompt: str) -> str:
        """Asks the model until it calls no more tools; its last words."""
        self.messages.append({"role": "user", "content": [{"type": "text", "text": prompt}]})
        for _ in range(MOST_TURNS):
            blocks = self.ask()
            self.messages.append({"role": "assistant", "content": blocks})
            calls = [block for block in blocks if block["type"] == "tool_use"]
            if not calls:
                return " ".join(block["text"] for block in blocks)
            self.messages.append({"role": "user", "content": [self.result(call) for call in calls]})
        raise SystemExit("the model calls tools for ever")

    def result(self, call: dict[str, Any]) -> dict[str, Any]:
        """Does what a tool call asks for, and says how it went."""
        try:
            text = self.act(call["name"], call["input"])
        except (OSError, KeyError, subprocess.TimeoutExpired) as error:
            text = f"failed: {error}"
        return {"type": "tool_result", "tool_use_id": call["id"], "content": text[:LONGEST_RESULT] or "(nothing was printed)"}

    def act(self, tool: str, given: dict[str, str]) -> str:
        """The tools themselves."""
        if tool == "bash":
            done = subprocess.run(["bash", "-c", given["command"]], cwd=self.folder, capture_output=True, text=True, timeout=TOOL_LIMIT_S)  # noqa: PLW1510 - a failure is the model's to see
            return done.stdout + done.stderr
        path = self.folder / given["file_path"]
        if tool == "read":
            return path.read_text()
        path.write_text(given["content"])
        return f"{path.name} is written. The reviewer says: {self.review(path)}"

    def review(self, path: Path) -> str:
        """A sub-agent with a prompt of its own reads the file."""
        reviewer = Agent(self.url, str(uuid.uuid4()), self.folder, REVIEWER_RULES, TOOLS[2:], parent=self.session)
        return reviewer.work(f"Working directory: {self.folder}\n\nReview {path.name}.")

    def ask(self) -> list[dict[str, Any]]:
        """One call of the model, streamed; the blocks of its answer."""
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "127.0.0.1", place.port, timeout=60)
        try:
            connection.request("POST", place.path.rstrip("/") + "/v1/messages", json.dumps(self.request()), self.headers())
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise SystemExit(f"the model server said {answer.status}: {answer.read(500).decode(errors='replace')}")
            return blocks_of(events(answer))
        finally:
            connection.close()

    def request(self) -> dict[str, Any]:
        """The body; the cache marker moves to the end of the conversation, as agents do it."""
        *before, last = self.messages
        *parts, end = last["content"]
        marked = {**last, "content": [*parts, {**end, "cache_control": {"type": "ephemeral"}}]}
        system = [{"type": "text", "text": self.system, "cache_control": {"type": "ephemeral"}}]
        limits = {"model": MODEL, "max_tokens": 1024, "stream": True}
        return {**limits, "system": system, "tools": list(self.tools), "messages": [*before, marked]}

    def headers(self) -> dict[str, str]:
        """Who asks: the session's id, and for a sub-agent the one it works for."""
        named = {"x-session-id": self.session, **({"x-parent-session-id": self.parent} if self.parent else {})}
        usual = {"content-type": "application/json", "anthropic-version": "2023-06-01", "user-agent": "demo-agent/1"}
        return {**usual, "x-api-key": "not-a-key", **named}


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The payloads of a stream of server-sent events."""
    for line in answer:
        if line.startswith(b"data:"):
            yield json.loads(line[5:])


def blocks_of(stream: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of an answer put together from its deltas."""
    blocks: list[dict[str, Any]] = []
    pieces: list[str] = []
    for event in stream:
        match event["type"]:
            case "content_block_start":
                blocks.append(event["content_block"])
                pieces.clear()
            case "content_block_delta":
                delta = event["delta"]
                pieces.append(delta.get("text") or delta.get("partial_json") or "")
            case "content_block_stop" if blocks[-1]["type"] == "tool_use":
                blocks[-1] = {**blocks[-1], "input": json.loads("".join(pieces) or "{}")}
            case "content_block_stop":
                blocks[-1] = {**blocks[-1], "text": "".join(pieces)}
    return blocks


def notes() -> list[tuple[str, str]]:
    """Different texts of a few pages to work on: chapters of Python's own reference, as `help()` shows them."""
    return [(name, text[:LONGEST_NOTES]) for name, text in sorted(topics.topics.items()) if len(text) >= SHORTEST_NOTES and name != STYLE]


def session(url: str, name: str, text: str) -> None:
    """One session: a task with notes, and a question afterwards."""
    with tempfile.TemporaryDirectory(prefix="playhead-demo-") as folder:
        agent = Agent(url, str(uuid.uuid4()), Path(folder).resolve(), RULES + topics.topics[STYLE][:LONGEST_NOTES], TOOLS)
        agent.work(f"These are my notes on {name}:\n\n{text}\n\nWrite a small program greeting.py that prints two greetings, and try it.")
        time.sleep(READING_PAUSE_S)
        agent.work("Thank you. Is there anything in it that I should know of?")


def main() -> None:
    """Runs some sessions, a few at a time."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--url", required=True)
    asked.add_argument("--sessions", type=int, default=1)
    asked.add_argument("--at-once", type=int, default=1)
    options = asked.parse_args()
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    with ThreadPoolExecutor(options.at_once) as pool:
        working = [pool.submit(session, options.url, name, text) for name, text in notes()[: options.sessions]]
        for one in working:
            one.result()


if __name__ == "__main__":
    main()
