"""Who may enter a listener, as tables: by which names it is asked for, whose page asks, and below which path."""

import pytest

from tracer.admission import Asked, Entrance, allowed_name, below_secret, is_secret, no_secret, refusal

HERE = Entrance(address="127.0.0.1", port=8080)
BEYOND = Entrance(address="0.0.0.0", port=8080, is_remote=True)
NAMED = Entrance(address="127.0.0.1", port=8080, names=frozenset(("host.docker.internal", "box.example")))


def kind(entrance: Entrance, **asked: object) -> str | None:
    """Why it is refused, in a word."""
    refused = refusal(entrance, Asked(**asked))  # type: ignore[arg-type]
    return refused.kind if refused else None


@pytest.mark.parametrize(
    ("entrance", "host", "enters"),
    [
        (HERE, "127.0.0.1:8080", True),
        (HERE, "127.0.0.1", True),
        (HERE, "127.8.9.10:99", True),
        (HERE, "localhost:8080", True),
        (HERE, "LocalHost.:9", True),
        (HERE, "agent.localhost", True),
        (HERE, "[::1]:8080", True),
        (HERE, "[::ffff:127.0.0.1]", True),
        (HERE, "", True),
        (HERE, "evil.test:8080", False),
        (HERE, "localhost.evil.test", False),
        (HERE, "notlocalhost", False),
        (HERE, "127.0.0.1.evil.test", False),
        (HERE, "127.0.0.1@evil.test", False),
        (HERE, "evil.test@127.0.0.1", False),
        (HERE, "127.0.0.1 evil.test", False),
        (HERE, "127.0.0.1/evil", False),
        (HERE, "192.168.1.4:8080", False),
        (HERE, "0.0.0.0:8080", False),
        (HERE, "[2001:db8::1]", False),
        (HERE, "[::1", False),
        (HERE, "host.docker.internal", False),
        (NAMED, "Host.Docker.Internal.:8080", True),
        (NAMED, "sub.box.example", False),
        (BEYOND, "192.168.1.4:8080", True),
        (BEYOND, "0.0.0.0:8080", True),
        (BEYOND, "[2001:db8::1]:8080", True),
        (BEYOND, "evil.test", False),
        (Entrance(address="192.168.1.4", port=8080), "192.168.1.4", True),
        (Entrance(address="::1", port=8080), "[::1]:8080", True),
    ],
)
def test_a_listener_goes_by_addresses_and_names_that_nobody_can_take(entrance: Entrance, host: str, enters: bool) -> None:
    """Rebinding needs a name that its owner can point elsewhere: only those that were allowed are ours."""
    assert kind(entrance, hosts=(host,)) == (None if enters else "host")
    assert kind(entrance, authority=host, is_http2=True) == (None if enters else "host")


def test_one_host_at_most() -> None:
    """None is HTTP/1.0's; of two an agent's server and a proxy might read one each."""
    assert kind(HERE) is None
    assert kind(HERE, hosts=("127.0.0.1", "127.0.0.1")) == "several hosts"
    assert kind(HERE, hosts=("127.0.0.1", "evil.test")) == "several hosts"
    assert kind(HERE, hosts=("127.0.0.1",), authority="evil.test", is_http2=True) == "host"


@pytest.mark.parametrize(
    ("authority", "why"),
    [
        ("127.0.0.1:8080", None),
        ("localhost:8080", None),
        ("127.0.0.1:9999", "not a forward proxy"),
        ("127.0.0.1", "not a forward proxy"),
        ("api.example", "host"),
        ("api.example:443", "host"),
    ],
)
def test_a_reverse_listener_is_no_forward_proxy(authority: str, why: str | None) -> None:
    """A target in absolute form, or of CONNECT, must name the listener itself, its port too."""
    assert kind(HERE, hosts=("127.0.0.1:8080",), authority=authority) == why


@pytest.mark.parametrize(
    ("origin", "enters"),
    [
        ("http://localhost:3000", True),
        ("https://127.0.0.1", True),
        ("http://[::1]:5173", True),
        ("http://tauri.localhost", True),
        ("tauri://localhost", True),
        ("app://obsidian.md", True),
        ("vscode-webview://0a1b", True),
        ("vscode-file://vscode-app", True),
        ("chrome-extension://abcdefghijklmnop", True),
        ("moz-extension://0a1b-2c", True),
        ("http://host.docker.internal:3000", True),
        ("https://evil.test", False),
        ("HTTP://EVIL.TEST", False),
        ("http://localhost.evil.test", False),
        ("http://localhost@evil.test", False),
        ("http://192.168.1.4", False),
        ("http://[::1", False),
        ("null", False),
        ("", False),
        ("evil.test", False),
    ],
)
def test_only_programs_and_local_pages_ask(origin: str, enters: bool) -> None:
    """A web site's origin is http(s) or null; installed programs have schemes of their own. An allowed page is let in from anywhere."""
    assert kind(NAMED, hosts=("127.0.0.1",), origins=(origin,)) == (None if enters else "origin")
    assert kind(NAMED, origins=(origin,), fetch_sites=("cross-site",)) == (None if enters else "origin")
    assert kind(NAMED, origins=("tauri://localhost", origin)) == (None if enters else "origin")


def test_a_page_on_a_bare_address_is_still_a_page() -> None:
    """Beyond loopback any address may stand for the listener, but not for the site of a page."""
    assert kind(BEYOND, hosts=("192.168.1.4",), origins=("http://203.0.113.7",)) == "origin"


@pytest.mark.parametrize(
    ("site", "why"),
    [("cross-site", "another site"), ("Cross-Site", "another site"), ("same-origin", None), ("same-site", None), ("none", None)],
)
def test_a_request_without_origin_is_judged_by_its_site(site: str, why: str | None) -> None:
    """An image or a link of a page has no Origin; browsers say that it comes from another site, or that somebody typed it."""
    assert kind(HERE, hosts=("127.0.0.1",), fetch_sites=(site,)) == why


def test_a_refusal_says_what_to_do() -> None:
    """The name that was used, short and printable, and the option that allows it."""
    refused = refusal(HERE, Asked(hosts=("host.docker.internal:8080",)))
    assert refused is not None
    assert "--allow-host host.docker.internal" in refused.message
    strange = refusal(HERE, Asked(hosts=("\x1b[31m" + "a" * 500,)))
    assert strange is not None
    assert strange.message.isprintable()
    assert len(strange.message) < 300


@pytest.mark.parametrize(("text", "name"), [("Box.Example.", "box.example"), (" a ", "a"), ("[::2]", "::2")])
def test_names_are_compared_without_case_and_dot(text: str, name: str) -> None:
    """As `--allow-host` takes them."""
    assert allowed_name(text) == name


@pytest.mark.parametrize("text", ["", "a b", "http://a", "a:80", "*", "*.example", "a/b", "a@b"])
def test_what_is_no_name_is_not_allowed(text: str) -> None:
    """A wildcard would allow the very names that rebinding uses."""
    with pytest.raises(ValueError, match="not the name of a host"):
        allowed_name(text)


@pytest.mark.parametrize(
    ("path", "below"),
    [
        (b"/k/s3cret-path/v1/messages?beta=true", b"/v1/messages?beta=true"),
        (b"/k/s3cret-path/s/label/v1", b"/s/label/v1"),
        (b"/k/s3cret-path/", b"/"),
        (b"/k/s3cret-path", b"/"),
        (b"/k/s3cret-path?a=/b", b"/?a=/b"),
        (b"/k/s3cret-path//x", b"//x"),
        (b"/k/S3cret-path/x", None),
        (b"/k/s3cret-pat/x", None),
        (b"/k/s3cret-path2/x", None),
        (b"/k/", None),
        (b"/k", None),
        (b"/v1/messages", None),
        (b"s3cret-path/x", None),
        (b"/x/k/s3cret-path/v1", None),
        (b"*", None),
        (b"/k/s3cret-path\xff/x", None),
    ],
)
def test_what_is_not_below_the_secret_is_not_there(path: bytes, below: bytes | None) -> None:
    """What remains goes on as it was sent, to the byte."""
    assert below_secret("s3cret-path", path) == below


def test_a_secret_stands_in_a_url_as_it_is() -> None:
    """Nothing to escape, not too short to be guessed at leisure."""
    assert [is_secret(text) for text in ("s3cret-path", "a" * 200, "short", "a" * 201, "with/slash", "with space", "é" * 9)] == [
        True,
        True,
        *[False] * 5,
    ]
    assert "SECRET" in no_secret().message
