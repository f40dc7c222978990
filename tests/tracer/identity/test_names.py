"""Whose request it is by the ids that agents send, and which client speaks."""

import json

import pytest
from identity_traffic import Wire, assistant, user

from tracer.identity.names import client_name

CODEX = {"session_id": "root-0123456789", "thread_id": "sub-0123456789", "parent_thread_id": "root-0123456789", "request_kind": "turn"}


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ((("X-Claude-Code-Session-Id", "one-0123456789"),), {}),
        ((), {"metadata": {"user_id": json.dumps({"session_id": "one-0123456789"})}}),
        ((), {"metadata": {"user_id": "user_x_account__session_11111111-2222-4333-8444-555555555555"}}),
        ((("session-id", "one-0123456789"),), {}),
        ((("x-litellm-session-id", "one-0123456789"),), {}),
        ((), {"prompt_cache_key": "one-0123456789abcdef"}),
        ((("x-session-id", "***:0123456789ab"),), {}),
    ],
)
def test_an_id_of_the_session_decides(headers: tuple[tuple[str, str], ...], fields: dict[str, object]) -> None:
    """Two requests that share nothing but the id are one session, wherever the id stands."""
    wire = Wire()
    one = wire.say([user("One thing")], assistant("1"), headers=headers, fields=fields)
    two = wire.say([user("Another")], assistant("2"), headers=headers, fields=fields)
    assert one.placement.session_key == two.placement.session_key
    assert one.placement.confidence >= 0.85


def test_a_cache_key_that_many_may_share_is_no_session() -> None:
    """`my-app` is a name, not an id."""
    wire = Wire()
    keys = [wire.say([user(text)], assistant("x"), fields={"prompt_cache_key": "my-app"}).placement.session_key for text in ("One", "Two")]
    assert keys[0] != keys[1]


def test_a_masked_id_is_no_id() -> None:
    """`***` hides what it was: equal masks are not equal ids."""
    wire = Wire()
    keys = [wire.say([user(t)], assistant("x"), headers=(("x-session-id", "***"),)).placement.session_key for t in ("One", "Two")]
    assert keys[0] != keys[1]


def test_a_session_in_the_instructions_and_in_the_cache_key_is_one() -> None:
    """Sub-agents send only one of the two: either leads to the session that had both."""
    wire = Wire()
    folder = "Folder: /home/x/.copilot/session-state/85dbe38b-0466-420a-92dd-b4cdfcecf750"
    key = {"prompt_cache_key": "0123456789abcdef0123"}
    system = {"role": "system", "content": folder}
    both = wire.say([system, user("One")], assistant("1"), fields=key)
    cached = wire.say([user("Two")], assistant("2"), fields=key)
    named = wire.say([system, user("Three")], assistant("3"))
    assert {trail.placement.session_key for trail in (cached, named)} == {both.placement.session_key}


def test_claude_code_names_its_sub_agents() -> None:
    """No agent id: the main agent. A nested agent names its parent."""
    wire = Wire()
    session = ("X-Claude-Code-Session-Id", "one-0123456789")
    main = wire.say([user("a")], assistant("1"), headers=(session,), client="claude-cli/2.1")
    sub = wire.say([user("b")], assistant("2"), headers=(session, ("x-claude-code-agent-id", "a1")), client="claude-cli/2.1")
    nested = (session, ("x-claude-code-agent-id", "a2"), ("x-claude-code-parent-agent-id", "a1"), ("x-claude-code-agent-type", "Explore"))
    deep = wire.say([user("c")], assistant("3"), headers=nested, client="claude-cli/2.1")
    assert main.placement.agent == "main"
    assert sub.placement.parent_thread_key == main.placement.thread_key
    assert deep.placement.parent_thread_key == sub.placement.thread_key
    assert deep.placement.agent == "Explore"
    assert main.placement.client == "claude-code"


def test_codex_says_it_in_its_metadata_and_the_body_beats_the_upgrade() -> None:
    """Headers of a WebSocket are those of its upgrade: they still say prewarm when the message says turn."""
    wire = Wire()
    upgrade = json.dumps(CODEX | {"request_kind": "prewarm"})
    headers = (("x-codex-turn-metadata", upgrade), ("x-client-request-id", "trap-0123456789"))
    fields = {"client_metadata": {"x-codex-turn-metadata": json.dumps(CODEX)}}
    trail = wire.say([user("a")], assistant("1"), headers=headers, fields=fields, client="codex_exec/0.171.0")
    assert trail.placement.session_key == "root-0123456789"
    assert trail.placement.thread_key == "root-0123456789/sub-0123456789"
    assert trail.placement.parent_thread_key == "root-0123456789/main"
    assert trail.placement.kind == "turn"
    assert trail.placement.client == "codex"


def test_opencode_gives_sub_agents_sessions_of_their_own() -> None:
    """`x-parent-session-id` leads to the root, over two steps as well."""
    wire = Wire()
    main = wire.say([user("a")], assistant("1"), headers=(("x-session-id", "ses_root000000"),), client="opencode/1.18")
    child = (("x-session-id", "ses_child00000"), ("x-parent-session-id", "ses_root000000"))
    sub = wire.say([user("b")], assistant("2"), headers=child, client="opencode/1.18")
    deeper = (("x-session-id", "ses_deeper0000"), ("x-parent-session-id", "ses_child00000"))
    deep = wire.say([user("c")], assistant("3"), headers=deeper, client="opencode/1.18")
    assert {trail.placement.session_key for trail in (main, sub, deep)} == {"ses_root000000"}
    assert sub.placement.parent_thread_key == main.placement.thread_key
    assert deep.placement.parent_thread_key == sub.placement.thread_key


def test_a_label_beats_every_other_sign() -> None:
    """What the run wrapper said holds, and the agents inside it stay apart."""
    wire = Wire()
    session = ("X-Claude-Code-Session-Id", "one-0123456789")
    main = wire.say([user("a")], assistant("1"), headers=(session,), label="nightly", client="claude-cli/2")
    sub = wire.say([user("b")], assistant("2"), headers=(session, ("x-claude-code-agent-id", "a1")), label="nightly", client="claude-cli/2")
    free = wire.say([user("c")], assistant("3"), label="nightly")
    assert {trail.placement.session_key for trail in (main, sub, free)} == {"label:nightly"}
    assert sub.placement.thread_key == "label:nightly/a1"
    assert main.placement.source == "label"


def test_a_request_names_the_answer_it_goes_on_from() -> None:
    """Only what is new is sent: the id of the last answer tells the thread."""
    wire = Wire()
    found = wire.read(wire.exchange([user("Begin it")], assistant("Yes.")))
    assert found.sighting is not None
    first = wire.identity.place(found.sighting)
    wire.identity.memory.responses["resp_1"] = first.id
    more = wire.say([user("And this")], assistant("x"), fields={"previous_response_id": "resp_1"})
    assert more.placement.thread_key == first.placement.thread_key
    assert more.placement.source == "lineage"


@pytest.mark.parametrize(
    ("signs", "name"),
    [
        ({"header:user-agent": "claude-cli/2.1.332 (external, cli)"}, "claude-code"),
        ({"header:user-agent": "codex_exec/0.171.0 (Debian)"}, "codex"),
        ({"header:user-agent": "GeminiCLI-tui/0.61.0/gemini-3.1-pro (linux)"}, "gemini-cli"),
        ({"header:user-agent": "QwenCode/0.24.4 (linux; x64)"}, "qwen-code"),
        ({"header:user-agent": "OpenAI/JS 5.20.1", "header:x-initiator": "user"}, "copilot"),
        ({"header:user-agent": "OpenAI/Python 2.26.0", "header:x-title": "OpenHands"}, "openhands"),
        ({"header:user-agent": "OpenAI/Python 2.20.0", "origin:command": "/usr/bin/python3 /opt/bin/aider --model x"}, "aider"),
        ({"header:user-agent": "OpenAI/Python 2.20.0"}, "openai/python"),
        ({}, None),
    ],
)
def test_clients_are_told_by_what_they_say_of_themselves(signs: dict[str, str], name: str | None) -> None:
    """Else by their command, else the first word of the user agent."""
    assert client_name(signs) == name
