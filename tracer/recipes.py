"""How each agent is pointed at the recorder: variables, arguments or a configuration given through the environment.

Pure. Nothing of the user's own is touched: what a recipe sets lives and dies with the child. Names and variables as observed with the
releases in docs/guide/record.md.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from storage.errors import PlayheadError

type Bases = Mapping[str, str]
"""What a client of each provider takes as base URL: `openai` with its `/v1`, `anthropic` and `gemini` without a version."""

LOOPBACK = "127.0.0.1,localhost,::1"
"""Never to be asked through a proxy of the user's: the recorder itself, and what agents run on loopback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointing:
    """What to add to a command so that it speaks to the recorder."""

    variables: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()
    """Put right behind the program's name."""


def pointing(command: Sequence[str], bases: Bases, environment: Mapping[str, str]) -> Pointing:
    """The recipe of the agent that `command` starts, or of any other command. `environment`: the user's, read for what is set already."""
    recipe = RECIPES.get(agent_of(command) or "", _any)
    found = recipe(bases, environment)
    return Pointing(variables=found.variables + _no_proxy(environment), arguments=found.arguments)


def with_arguments(command: Sequence[str], arguments: Sequence[str]) -> tuple[str, ...]:
    """The command with arguments put right behind the agent's own name (which may follow `npx` and the like)."""
    place = next((number for number in range(min(4, len(command))) if _program(command[number]) in _PROGRAMS), 0) + 1
    return (*command[:place], *arguments, *command[place:])


def agent_of(command: Sequence[str]) -> str | None:
    """The agent a command starts, by its program's name, `npx`-like starters looked through; None when it is none known."""
    for word in command[:4]:
        name = _program(word)
        if agent := _PROGRAMS.get(name):
            return agent
        if name not in _STARTERS and not word.startswith("-"):
            return None
    return None


def _program(word: str) -> str:
    """The name a program or package goes by: `/usr/bin/claude`, `codex.cmd`, `@openai/codex@0.171`."""
    return PurePath(word).name.removesuffix(".cmd").removesuffix(".exe").partition("@")[0]


def _claude(bases: Bases, environment: Mapping[str, str]) -> Pointing:  # noqa: ARG001 - one shape for all recipes
    hints = (("CLAUDE_CODE_GATEWAY_HINT_HEADERS", "1"),)
    return Pointing(variables=(("ANTHROPIC_BASE_URL", bases["anthropic"]), *hints))


def _codex(bases: Bases, environment: Mapping[str, str]) -> Pointing:  # noqa: ARG001 - one shape for all recipes
    return Pointing(arguments=("-c", f"openai_base_url={json.dumps(bases['openai'])}"))


def _opencode(bases: Bases, environment: Mapping[str, str]) -> Pointing:
    """Its configuration may come from the environment; what the user has there is kept and only the base URLs are set."""
    try:
        config = json.loads(environment.get("OPENCODE_CONFIG_CONTENT") or "{}")
    except (ValueError, RecursionError):
        config = {}
    providers = _inner(_object(config, "the configuration"), "provider", "provider")
    for name, base in (("anthropic", bases["anthropic"] + "/v1"), ("openai", bases["openai"]), ("google", bases["gemini"] + "/v1beta")):
        provider = _inner(providers, name, f"provider.{name}")
        _inner(provider, "options", f"provider.{name}.options")["baseURL"] = base
    return Pointing(variables=(("OPENCODE_CONFIG_CONTENT", json.dumps(config)),))


def _inner(outer: dict[str, Any], name: str, place: str) -> dict[str, Any]:
    """The object called `name` in `outer`, made where there is none."""
    if outer.get(name) is None:
        outer[name] = {}
    return _object(outer[name], place)


def _object(found: Any, place: str) -> dict[str, Any]:
    """What was found at `place` of opencode's configuration; PlayheadError when it is no object."""
    if not isinstance(found, dict):
        raise PlayheadError(
            f"OPENCODE_CONFIG_CONTENT cannot be added to: {place} is no JSON object", hint="mend it as opencode wants it, or unset it"
        )
    return found


def _litellm(bases: Bases, environment: Mapping[str, str]) -> Pointing:  # noqa: ARG001 - one shape for all recipes
    """aider and mini-swe-agent speak through litellm."""
    return Pointing(
        variables=(
            ("OPENAI_API_BASE", bases["openai"]),
            ("OPENAI_BASE_URL", bases["openai"]),
            ("ANTHROPIC_API_BASE", bases["anthropic"]),
            ("ANTHROPIC_BASE_URL", bases["anthropic"]),
            ("GEMINI_API_BASE", bases["gemini"]),
        )
    )


def _gemini(bases: Bases, environment: Mapping[str, str]) -> Pointing:  # noqa: ARG001 - one shape for all recipes
    return Pointing(variables=(("GOOGLE_GEMINI_BASE_URL", bases["gemini"]),))


def _qwen(bases: Bases, environment: Mapping[str, str]) -> Pointing:  # noqa: ARG001 - one shape for all recipes
    return Pointing(variables=(("OPENAI_BASE_URL", bases["openai"]),))


def _copilot(bases: Bases, environment: Mapping[str, str]) -> Pointing:
    """It takes a base URL for a provider of the user's own alone, and that is what a base URL makes it take: only who has one gets it."""
    if not any(name.startswith("COPILOT_PROVIDER_") for name in environment):
        return Pointing()
    kind = "anthropic" if environment.get("COPILOT_PROVIDER_TYPE") == "anthropic" else "openai"
    return Pointing(variables=(("COPILOT_PROVIDER_BASE_URL", bases[kind]),))


def _any(bases: Bases, environment: Mapping[str, str]) -> Pointing:  # noqa: ARG001 - one shape for all recipes
    return Pointing(
        variables=(
            ("ANTHROPIC_BASE_URL", bases["anthropic"]),
            ("OPENAI_BASE_URL", bases["openai"]),
            ("OPENAI_API_BASE", bases["openai"]),
            ("GOOGLE_GEMINI_BASE_URL", bases["gemini"]),
        )
    )


def _no_proxy(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What either variable names is kept, each name once: programs read one or the other."""
    named = ",".join((environment.get("NO_PROXY", ""), environment.get("no_proxy", ""), LOOPBACK)).split(",")
    value = ",".join(dict.fromkeys(name.strip() for name in named if name.strip()))
    return (("NO_PROXY", value), ("no_proxy", value))


_STARTERS = frozenset(("npx", "bunx", "pnpm", "pnpx", "dlx", "exec", "uvx", "uv", "tool", "run", "pipx", "env", "node", "time"))

_PROGRAMS = {
    "claude": "claude-code",
    "claude-code": "claude-code",
    "codex": "codex",
    "opencode": "opencode",
    "opencode-ai": "opencode",
    "aider": "aider",
    "aider-chat": "aider",
    "mini": "mini-swe-agent",
    "mini-swe-agent": "mini-swe-agent",
    "gemini": "gemini-cli",
    "gemini-cli": "gemini-cli",
    "qwen": "qwen-code",
    "qwen-code": "qwen-code",
    "copilot": "copilot",
}
"""Program or package name -> agent."""

RECIPES: dict[str, Callable[[Bases, Mapping[str, str]], Pointing]] = {
    "claude-code": _claude,
    "codex": _codex,
    "opencode": _opencode,
    "aider": _litellm,
    "mini-swe-agent": _litellm,
    "gemini-cli": _gemini,
    "qwen-code": _qwen,
    "copilot": _copilot,
}


def bases(listeners: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Base URLs by provider, of (url, upstream) pairs: the listener whose upstream is that provider's, else the first.

    An upstream given with `/v1` has the version already: OpenAI clients then get a base URL without.
    """
    found = {}
    for provider, mark in (("anthropic", "anthropic"), ("openai", "openai"), ("gemini", "googleapis")):
        url, upstream = next((pair for pair in listeners if mark in pair[1]), listeners[0])
        found[provider] = url if provider != "openai" or upstream.rstrip("/").endswith("/v1") else url + "/v1"
    return found
