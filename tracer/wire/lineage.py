"""Requests that name the answer they go on from, made whole: which dialects have them, and what is held before each.

Pure: it is given the exchanges that lead to a request, oldest first. It does not know how they are found.
"""

from collections.abc import Callable
from dataclasses import dataclass

from storage.records import Exchange, Request
from tracer.wire import answers, anthropic_messages, openai_responses, requests
from tracer.wire.anthropic_messages import whole as messages
from tracer.wire.contract import Held
from tracer.wire.openai_responses import whole as responses


@dataclass(frozen=True, slots=True)
class _Way:
    whole: Callable[[bytes, Held], bytes]
    held: Callable[[bytes, Held, tuple[bytes, ...]], Held]
    output: Callable[[answers.Answer | None], tuple[bytes, ...]]


_WAYS = {
    anthropic_messages.NAME: _Way(messages.whole, messages.held, messages.output),
    openai_responses.NAME: _Way(responses.whole, responses.held, responses.output),
}


def whole(dialect: str, request: Request, before: Held) -> Request:
    """The request with all that was held before in its body. ValueError when its body cannot carry it."""
    return requests.rewritten(request, _way(dialect).whole(requests.editable(request), before))


def held(dialect: str, exchange: Exchange, before: Held) -> Held:
    """What a server holds after this exchange. ValueError when its request cannot be read."""
    way = _way(dialect)
    return way.held(requests.editable(exchange.request), before, way.output(answers.answer(exchange)))


def _way(dialect: str) -> _Way:
    found = _WAYS.get(dialect)
    if found is None:
        raise ValueError(f"{dialect} has no requests that name an answer")
    return found
