"""The wire dialects: which one a request speaks, what it means, how it is laid out. Pure: bytes in, values out."""

from storage.records import Exchange, Request, Split
from tracer.wire import anthropic_messages, gemini, openai_chat, openai_responses, requests
from tracer.wire.contract import Call, Dialect

DIALECTS: tuple[Dialect, ...] = (anthropic_messages, openai_chat, openai_responses, gemini)


def dialect_of(request: Request) -> Dialect | None:
    """The dialect that a request speaks; None for anything that is no model call known here."""
    return next((dialect for dialect in DIALECTS if dialect.matches(request)), None)


def named(name: str) -> Dialect:
    """The dialect of that name; KeyError when there is none."""
    for dialect in DIALECTS:
        if name == dialect.NAME:
            return dialect
    raise KeyError(name)


def split(request: Request) -> Split | None:
    """A request body taken apart, content encoding removed; None: keep it whole."""
    dialect = dialect_of(request)
    text = requests.text(request) if dialect else None
    return dialect.split(text) if dialect and text is not None else None


def read(exchange: Exchange) -> tuple[Dialect, Call] | None:
    """The dialect of an exchange and what it meant; None for unknown traffic."""
    dialect = dialect_of(exchange.request)
    return (dialect, dialect.read(exchange)) if dialect else None


def is_head(dialect: Dialect, group: str, element: bytes) -> bool:
    """Whether an element stands before all that is said: tools and instructions, which a request that goes on from another brings anew."""
    return group in ("tool", "system") and not (dialect is openai_responses and openai_responses.prompt.brings_tools(element))
