"""What a client is told when no answer came from its upstream: JSON in its provider's own error shape, never HTML.

Pure: a path, a status and a reason in, bytes out. Agents parse what they get; an HTML page where they expect JSON hides the reason.
"""

import json
from http import HTTPStatus
from typing import Any

_OUR_OWN = frozenset((400, 403, 405, 411, 413, 414, 431, 501, 505))
"""Statuses of requests that are refused before the upstream is asked."""


def response(status: int, message: str, *, path: str = "", method: str = "POST") -> bytes:
    """A whole HTTP/1.1 answer that closes the connection. A HEAD request gets the head alone."""
    body = error_body(status, message, path)
    head = (
        f"HTTP/1.1 {status} {reason(status)}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nServer: playhead\r\nConnection: close\r\n\r\n"
    ).encode("latin-1")
    return head if method.upper() == "HEAD" else head + body


def reason(status: int) -> str:
    """The usual phrase of a status, empty when there is none."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def error_body(status: int, message: str, path: str) -> bytes:
    """The error object that the provider behind `path` would send."""
    asked = status not in _OUR_OWN
    what = "playhead got no answer from the upstream" if asked else "playhead cannot pass this request on"
    return json.dumps(_shape(status, f"{what}: {message}", path, asked=asked)).encode()


def _shape(status: int, text: str, path: str, *, asked: bool) -> dict[str, Any]:
    """`asked`: whether the upstream was; else the request itself is at fault."""
    place = path.partition("?")[0]
    if "/messages" in place or "/complete" in place.rpartition("/")[0] + "/":
        return {"type": "error", "error": {"type": "api_error" if asked else "invalid_request_error", "message": text}}
    if ":" in place.rpartition("/")[2] or "/v1beta" in place:
        return {"error": {"code": status, "message": text, "status": "UNAVAILABLE" if asked else "INVALID_ARGUMENT"}}
    kind, code = ("server_error", "upstream_unreachable") if asked else ("invalid_request_error", "bad_request")
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}
