"""What every dialect asks of a request: its path, its headers, its body without content encoding, its settings."""

import re
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from storage.records import Headers, Request
from tracer.wire import content_encoding
from tracer.wire.json_spans import members
from tracer.wire.json_values import Fields, Raw, value

_SLASHES = re.compile(r"/{2,}")


def path(request: Request) -> str:
    """The path without query, runs of slashes taken as one and none at the end."""
    try:
        found = urlsplit(request.url).path
    except ValueError:
        return ""
    return _SLASHES.sub("/", found).rstrip("/")


def host(request: Request) -> str:
    """The host name of the URL, lower case; "" when there is none."""
    try:
        return urlsplit(request.url).hostname or ""
    except ValueError:
        return ""


def header(headers: Headers, name: str) -> str | None:
    """The value of a header, several joined by commas (RFC 9110, 5.3); None when it is not there."""
    found = [value for key, value in headers if key.lower() == name]
    return ", ".join(found) if found else None


def text(request: Request) -> bytes | None:
    """The body with its content encoding removed; None when it cannot be unpacked."""
    return content_encoding.decode(request.body, header(request.headers, "content-encoding"))


def settings(body: Fields, spoken_for: frozenset[str]) -> dict[str, Any]:
    """The remaining top-level fields, parsed."""
    return {key: value(raw) for key, raw in body.items() if key not in spoken_for}


def either(body: Fields, first: str, second: str) -> Raw | None:
    """The value under one of two names of the same thing."""
    return body[first] if first in body else body.get(second)


def rewritten(request: Request, body: bytes) -> Request:
    """The request with another body, in the clear; as it was when the body says the same."""
    if body == text(request):
        return request
    headers = tuple(
        (name, str(len(body)) if name.lower() == "content-length" else value)
        for name, value in request.headers
        if name.lower() != "content-encoding"
    )
    return replace(request, headers=headers, body=body)


def editable(request: Request) -> bytes:
    """The body without content encoding, for changing; ValueError when it is no JSON object."""
    body = text(request)
    if body is None or members(body) is None:
        raise ValueError("the body is no JSON object")
    return body
