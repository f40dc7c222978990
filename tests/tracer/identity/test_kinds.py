"""What a call is for, by what the wire says, by known texts, and by wording."""

import json
from typing import Any

import pytest
from identity_traffic import Message, Wire, assistant, result, system, user

TOOL = {"type": "function", "function": {"name": "ls", "parameters": {}}}


@pytest.mark.parametrize(
    ("kind", "talk", "more"),
    [
        ("turn", [system("Be good."), user("Hello")], {}),
        ("compaction", [user("a"), assistant("b"), user("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nx")], {}),
        ("title", [system("You are naming a coding session so the user can pick it out"), user("x")], {}),
        ("router", [system("\nYou are a specialized Task Routing AI. Choose."), user("x")], {}),
        ("memory", [system("You are now acting as the managed memory extraction subagent"), user("x")], {}),
        ("commit_message", [system("You are an expert software engineer that generates concise, \nGit"), user("diff")], {}),
        ("compaction", [system("*Briefly* summarize this partial conversation about programming."), user("x")], {}),
        ("compaction", [user("x")], {"headers": (("x-interaction-type", "conversation-compaction"),)}),
        ("compaction", [user("x")], {"headers": (("x-claude-code-request-class", "compaction"),)}),
        ("side", [user("x")], {"headers": (("x-claude-code-request-class", "auxiliary"),)}),
        ("side", [user("quota")], {"fields": {"max_tokens": 1}}),
        ("prewarm", [user("x")], {"fields": {"generate": False}}),
        ("memory", [user("x")], {"headers": (("x-openai-subagent", "memory_consolidation"),)}),
        ("title", [system("Generate a short title for the following conversation."), user("x")], {}),
        ("commit_message", [system("Write a conventional commit message for this diff."), user("x")], {}),
        ("compaction", [system("Summarize the conversation so far."), user("x")], {}),
    ],
)
def test_kinds(kind: str, talk: list[Message], more: dict[str, Any]) -> None:
    """Each sign gives its kind."""
    assert Wire().say(talk, assistant("x"), **more).placement.kind == kind


def test_wording_decides_only_where_no_tool_is_offered() -> None:
    """An agent whose instructions speak of titles is still an agent."""
    talk = [system("You write code and generate a title for each conversation."), user("x")]
    assert Wire().say(talk, assistant("x"), fields={"tools": [TOOL]}).placement.kind == "turn"


def test_a_tool_that_returns_a_known_text_changes_nothing() -> None:
    """What a tool read from a file is not what the agent asks."""
    talk = [user("Read it"), assistant("Yes"), result("call_1", "Generate a title for this conversation:")]
    assert Wire().say(talk, assistant("x")).placement.kind == "turn"


@pytest.mark.parametrize(("asked", "kind"), [("prewarm", "prewarm"), ("compaction", "compaction"), ("turn", "turn"), ("new_thing", "turn")])
def test_codex_says_what_it_asks_for(asked: str, kind: str) -> None:
    """`request_kind` in its metadata; a kind that is not known is a turn."""
    metadata = json.dumps({"session_id": "s-0123456789", "request_kind": asked})
    assert Wire().say([user("x")], assistant("x"), headers=(("x-codex-turn-metadata", metadata),)).placement.kind == kind


def test_unknown_traffic_is_other_and_has_no_place() -> None:
    """A telemetry call is listed unread."""
    wire = Wire()
    found = wire.read(wire.exchange([], assistant("x"), path="/api/telemetry"))
    assert found.sighting is None
    assert (found.reading.kind, found.reading.dialect) == ("other", None)


def test_a_token_count_is_no_turn() -> None:
    """It has the prompt of a thread and a path of its own."""
    wire = Wire()
    found = wire.read(wire.exchange([user("Hello there")], assistant("x"), path="/v1/messages/count_tokens"))
    assert found.reading.kind == "count_tokens"
