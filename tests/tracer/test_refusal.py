"""What a client is told when no answer came: its own provider's error, as JSON."""

import json

import pytest

from tracer import refusal


@pytest.mark.parametrize(
    ("path", "where", "kind"),
    [
        ("/v1/messages?beta=true", ("error", "type"), "api_error"),
        ("/v1/chat/completions", ("error", "code"), "upstream_unreachable"),
        ("/v1/responses", ("error", "type"), "server_error"),
        ("/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", ("error", "status"), "UNAVAILABLE"),
        ("", ("error", "code"), "upstream_unreachable"),
    ],
)
def test_the_error_has_the_providers_shape(path: str, where: tuple[str, str], kind: str) -> None:
    """Each provider's clients find their own fields, and the reason in `error.message`."""
    error = json.loads(refusal.error_body(502, "refused", path))
    assert error[where[0]][where[1]] == kind
    assert error["error"]["message"].endswith("refused")


def test_a_refusal_is_a_whole_answer_that_closes() -> None:
    """Its length is right, and a HEAD request gets no body."""
    head, _, body = refusal.response(502, "é", path="/v1/messages").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"Connection: close" in head
    assert refusal.response(502, "x", method="HEAD").endswith(b"\r\n\r\n")


def test_a_status_without_a_phrase_has_none() -> None:
    """An unknown status is no error here."""
    assert (refusal.reason(502), refusal.reason(299)) == ("Bad Gateway", "")


@pytest.mark.parametrize(
    ("path", "where", "kind"),
    [
        ("/v1/messages", ("error", "type"), "invalid_request_error"),
        ("/v1/chat/completions", ("error", "code"), "bad_request"),
        ("/v1beta/models/gemini-2.5-pro:generateContent", ("error", "status"), "INVALID_ARGUMENT"),
    ],
)
def test_a_request_at_fault_is_not_the_upstreams_silence(path: str, where: tuple[str, str], kind: str) -> None:
    """The upstream was never asked, and nothing says that it was."""
    error = json.loads(refusal.error_body(400, "two lengths", path))
    assert error[where[0]][where[1]] == kind
    assert error["error"]["message"] == "playhead cannot pass this request on: two lengths"
