"""How each agent is pointed at the recorder, and that nothing else of the user's is changed."""

import json
from typing import Any

import pytest

from storage.errors import PlayheadError
from tracer import recipes
from tracer.recipes import Pointing

BASES = {"anthropic": "http://127.0.0.1:1", "openai": "http://127.0.0.1:2/v1", "gemini": "http://127.0.0.1:3"}


def variables(*command: str, **environment: str) -> dict[str, str]:
    return dict(recipes.pointing(command, BASES, environment).variables)


@pytest.mark.parametrize(
    ("command", "agent"),
    [
        (["claude", "-p", "x"], "claude-code"),
        (["/usr/local/bin/claude"], "claude-code"),
        (["npx", "-y", "@anthropic-ai/claude-code@2.1.332", "-p"], "claude-code"),
        (["npx", "@openai/codex", "exec"], "codex"),
        (["opencode", "run"], "opencode"),
        (["uvx", "--from", "aider-chat", "aider"], "aider"),
        (["mini", "-t", "x"], "mini-swe-agent"),
        (["gemini.cmd"], "gemini-cli"),
        (["qwen"], "qwen-code"),
        (["npx", "@github/copilot"], "copilot"),
        (["python", "claude"], None),
        (["make", "codex"], None),
        ([], None),
    ],
)
def test_agents_are_known_by_their_program(command: list[str], agent: str | None) -> None:
    """By name or package, also behind npx and uvx; a word in another command's arguments is no agent."""
    assert recipes.agent_of(command) == agent


@pytest.mark.parametrize(
    ("environment", "base"),
    [
        ({}, None),
        ({"COPILOT_PROVIDER_API_KEY": "k"}, "http://127.0.0.1:2/v1"),
        ({"COPILOT_PROVIDER_TYPE": "anthropic"}, "http://127.0.0.1:1"),
    ],
)
def test_copilot_is_pointed_only_where_it_has_a_provider(environment: dict[str, str], base: str | None) -> None:
    """A base URL would take it away from GitHub's models."""
    assert variables("copilot", **environment).get("COPILOT_PROVIDER_BASE_URL") == base


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("claude", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}),
        ("aider", {"OPENAI_API_BASE": "http://127.0.0.1:2/v1", "ANTHROPIC_API_BASE": "http://127.0.0.1:1"}),
        ("mini", {"OPENAI_API_BASE": "http://127.0.0.1:2/v1"}),
        ("gemini", {"GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:3"}),
        ("qwen", {"OPENAI_BASE_URL": "http://127.0.0.1:2/v1"}),
        (
            "my-agent",
            {
                "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
                "OPENAI_BASE_URL": "http://127.0.0.1:2/v1",
                "OPENAI_API_BASE": "http://127.0.0.1:2/v1",
            },
        ),
    ],
)
def test_variables_name_the_listener(program: str, expected: dict[str, str]) -> None:
    """The variables that the agent reads; loopback is never asked for through the user's proxy."""
    found = variables(program)
    assert expected.items() <= found.items()
    assert "127.0.0.1" in found["NO_PROXY"]
    assert found["NO_PROXY"] == found["no_proxy"]


def test_what_the_user_excluded_from_proxies_stays_excluded() -> None:
    """Ours is added."""
    assert variables("claude", NO_PROXY="corp.example")["NO_PROXY"].split(",")[0] == "corp.example"
    both = variables("claude", NO_PROXY="a.example, localhost", no_proxy="b.example,a.example")
    assert both["NO_PROXY"] == both["no_proxy"] == "a.example,localhost,b.example,127.0.0.1,::1"


def test_codex_gets_arguments() -> None:
    """It ignores the variable; its configuration is overridden on the command line, behind its own name."""
    found = recipes.pointing(["npx", "codex", "exec", "hi"], BASES, {})
    assert found.arguments == ("-c", 'openai_base_url="http://127.0.0.1:2/v1"')
    whole = recipes.with_arguments(["npx", "codex", "exec", "hi"], found.arguments)
    assert whole == ("npx", "codex", "-c", 'openai_base_url="http://127.0.0.1:2/v1"', "exec", "hi")
    assert recipes.with_arguments(["x", "y"], Pointing().arguments) == ("x", "y")


@pytest.mark.parametrize("given", ['{"theme":"dark","provider":{"openai":{"options":{"apiKey":"k"}}}}', "not json", ""])
def test_opencode_keeps_its_own_configuration(given: str) -> None:
    """Only the base URLs are set in what comes from the environment."""
    config: dict[str, Any] = json.loads(variables("opencode", OPENCODE_CONFIG_CONTENT=given)["OPENCODE_CONFIG_CONTENT"])
    assert config["provider"]["openai"]["options"]["baseURL"] == "http://127.0.0.1:2/v1"
    assert config["provider"]["anthropic"]["options"]["baseURL"] == "http://127.0.0.1:1/v1"
    if given.startswith("{"):
        assert config["theme"] == "dark"
        assert config["provider"]["openai"]["options"]["apiKey"] == "k"


def test_opencode_gets_a_null_filled_in() -> None:
    """As where nothing was."""
    config = json.loads(variables("opencode", OPENCODE_CONFIG_CONTENT='{"provider":{"openai":null}}')["OPENCODE_CONFIG_CONTENT"])
    assert config["provider"]["openai"] == {"options": {"baseURL": "http://127.0.0.1:2/v1"}}


@pytest.mark.parametrize(
    "given", ["[1]", "null", '{"provider":[]}', '{"provider":{"openai":3}}', '{"provider":{"openai":{"options":"x"}}}']
)
def test_an_opencode_configuration_of_another_shape_is_refused(given: str) -> None:
    """It cannot be added to, and is not thrown away unsaid."""
    with pytest.raises(PlayheadError, match=r"OPENCODE_CONFIG_CONTENT.* is no JSON object") as caught:
        variables("opencode", OPENCODE_CONFIG_CONTENT=given)
    assert caught.value.hint


def test_each_provider_gets_its_own_listener() -> None:
    """By the upstream's name; with one upstream all get it. A version that the upstream has already is not put twice."""
    three = [
        ("http://l:1", "https://api.anthropic.com"),
        ("http://l:2", "https://api.openai.com"),
        ("http://l:3", "https://generativelanguage.googleapis.com"),
    ]
    assert recipes.bases(three) == {"anthropic": "http://l:1", "openai": "http://l:2/v1", "gemini": "http://l:3"}
    assert recipes.bases([("http://l:9", "http://127.0.0.1:8000/v1")]) == {
        "anthropic": "http://l:9",
        "openai": "http://l:9",
        "gemini": "http://l:9",
    }
