"""Addresses as users write them."""

import pytest

from storage.errors import PlayheadError
from tracer import upstreams


@pytest.mark.parametrize(
    ("text", "origin", "base_path"),
    [
        ("https://api.openai.com", "https://api.openai.com", ""),
        ("https://api.openai.com/", "https://api.openai.com", ""),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000", "/v1"),
        ("api.example.com/deep/er", "https://api.example.com", "/deep/er"),
        ("http://[::1]:80", "http://[::1]", ""),
        ("https://host:8443", "https://host:8443", ""),
    ],
)
def test_upstreams_are_taken_apart(text: str, origin: str, base_path: str) -> None:
    """Origin without the usual port, and the path that is put before every other."""
    found = upstreams.parse(text)
    assert (found.origin, found.base_path, found.given) == (origin, base_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "ftp://x",
        "http://",
        "http://h:99999",
        "http://h/x?key=1",
        "http://u:secret@h",
        "http://h#f",
        "",
        "http://a b",
        "http://..",
        "http://a..b",
        "http://h:0",
        "http://a\x7f",
    ],
)
def test_what_is_no_upstream_is_refused(text: str) -> None:
    """In one line, with a hint, without a secret."""
    with pytest.raises(PlayheadError) as caught:
        upstreams.parse(text)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


def test_each_upstream_is_taken_once() -> None:
    """In order; the three providers when none is given."""
    assert [each.origin for each in upstreams.chosen(["http://a", "http://b", "http://a/"])] == ["http://a", "http://b"]
    assert [each.given for each in upstreams.chosen([])] == list(upstreams.DEFAULT_UPSTREAMS)
    assert len(upstreams.chosen(["http://a", "http://a/v1"])) == 2


def test_listening_addresses() -> None:
    """Host and port, or either alone."""
    assert upstreams.parse_listen("127.0.0.1:80") == ("127.0.0.1", 80)
    assert upstreams.parse_listen(":8080") == upstreams.parse_listen("8080") == ("127.0.0.1", 8080)
    assert upstreams.parse_listen("[::1]:0") == ("::1", 0)
    for text in ("host:", "host:x", "1.2.3.4:70000"):
        with pytest.raises(PlayheadError):
            upstreams.parse_listen(text)
    assert [upstreams.is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "127.9.9.9", "0.0.0.0", "10.0.0.1")] == [True] * 4 + [
        False
    ] * 2


@pytest.mark.parametrize("host", ["127.evil.example", "127.0.0.1.evil.example", "127.1", "localhost.evil.example", "", "::"])
def test_a_name_is_not_loopback_for_its_looks(host: str) -> None:
    """Only an address of the loopback network is, or the name `localhost`."""
    assert not upstreams.is_loopback(host)
