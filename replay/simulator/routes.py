"""Which path means what: the model calls of each dialect, and the server's own pages. Pure."""

from typing import NamedTuple, Protocol

from replay.simulator.dialects import anthropic_messages, gemini, openai_chat, openai_responses
from replay.simulator.values import Answer, Asked, Event, Json


class Spoken(Protocol):
    """A dialect as a server speaks it, as a module."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module constant
        """As in `--truth`: anthropic_messages, openai_chat, openai_responses, gemini."""
        ...

    def ask(self, path: str, query: str, body: Json) -> Asked:
        """What a request asks for. Never raises on any JSON object."""
        ...

    def events(self, answer: Answer) -> list[Event]:
        """The answer as a stream."""
        ...

    def whole(self, answer: Answer) -> bytes:
        """The answer as one document."""
        ...

    def refusal(self, status: int, reason: str, message: str) -> bytes:
        """An error's body."""
        ...


DIALECTS: tuple[Spoken, ...] = (anthropic_messages, openai_chat, openai_responses, gemini)


class Target(NamedTuple):
    """A request's path and query."""

    path: str
    query: str


def parted(target: str) -> Target:
    """Path and query of a request target, absolute or not."""
    if "://" in target:
        target = "/" + target.split("://", 1)[1].partition("/")[2]
    path, _, query = target.partition("?")
    return Target(path, query)


def dialect_of(path: str) -> Spoken | None:
    """The dialect whose model calls are posted to this path, whatever stands before it."""
    if path.endswith(("/messages", "/messages/count_tokens")):
        return anthropic_messages
    if path.endswith("/chat/completions"):
        return openai_chat
    if path.endswith("/responses"):
        return openai_responses
    return gemini if gemini.PATH.search(path) else None


def refusing(path: str) -> Spoken:
    """The dialect in whose shape an error on this path is told."""
    return dialect_of(path) or (gemini if "/v1beta/" in path else openai_chat)
