"""What is kept of a head and what is masked: secrets never, in no part; what identifies a session or says how a server works, always."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.redaction import Redaction, masked

REDACTION = Redaction(b"k" * 32)
SECRET = "xY7kQ2mN9pR4sT6vW8zA3bC5dE1fG0hJkLmNpQrS"
KEYS = [
    f"sk-ant-api03-{SECRET}",
    f"AIza{SECRET}",
    f"ya29.{SECRET}",
    f"ghp_{SECRET}",
    f"sk-proj-{SECRET}",
    SECRET,
    "AKIA" + "ABCDEFGH12345678",
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("place", ["{}", "the key {} is wrong", "user-agent/1.0 ({})", "https://host/{}/x", '{{"key": "{}"}}', "a={};b"])
def test_keys_are_masked_wherever_they_stand(key: str, place: str) -> None:
    """No part of one is left, not its first and not its last twelve characters."""
    masked = REDACTION.text(place.format(key))
    assert key[-12:] not in masked
    assert key[:12] not in masked
    assert "***" in masked


@pytest.mark.parametrize(
    "text",
    [
        "claude-cli/2.1.332 (external, sdk-cli)",
        "claude-code-20250219,interleaved-thinking-2025-05-14,thinking-token-count-2026-05-13",
        "01a22ea2-53be-7ef3-b45e-a163a873ac46:0",
        "ses_dd14db86effejxuZ54LGdLRfoU",
        "req_011CSHoEeqs5C35K2UUAbc12",
        '"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"',
        '{"session_id":"01a22ea2-53be-7ef3-b45e-a163a873ac46","turn_id":"t"}',
        "[Errno 111] Connect call failed ('127.0.0.1', 8001)",
    ],
)
def test_what_says_who_sent_this_is_kept(text: str) -> None:
    """Ids, versions and errors are no keys."""
    assert REDACTION.text(text) == text


def test_headers_are_kept_by_an_allow_list() -> None:
    """Names, order and case stay; a value that is not on the list becomes a fingerprint that is equal for equal values."""
    kept = REDACTION.headers(
        (
            ("X-Claude-Code-Session-Id", "ea42b50c-495f-4c30-b495-d7df2b533f0e"),
            ("AUTHORIZATION", f"Bearer {SECRET}"),
            ("x-api-key", SECRET),
            ("X-Api-Key", SECRET),
            ("Cookie", "theme=dark"),
            ("X-Strange", "harmless"),
            ("X-Empty", ""),
            ("User-Agent", f"tool/1 {SECRET}"),
        )
    )
    values = [value for _, value in kept]
    assert [name for name, _ in kept[:2]] == ["X-Claude-Code-Session-Id", "AUTHORIZATION"]
    assert values[0] == "ea42b50c-495f-4c30-b495-d7df2b533f0e"
    assert all(re.fullmatch(r"\*\*\*:[0-9a-f]{12}", value) for value in values[1:6])
    assert values[2] == values[3] != values[1]
    assert values[6:] == ["", "tool/1 ***"]


def test_fingerprints_need_the_traces_own_key() -> None:
    """The same secret in two traces cannot be matched."""
    assert REDACTION.fingerprint(SECRET) != Redaction(b"j" * 32).fingerprint(SECRET)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://h/v1/messages?beta=true", "http://h/v1/messages?beta=true"),
        (
            "http://h/v1//x?path=%2Fa%2fb//c/../d&e=a+b%20c;f=%C3%A9&&g&n=1",
            "http://h/v1//x?path=%2Fa%2fb//c/../d&e=a+b%20c;f=%C3%A9&&g&n=1",
        ),
        ("http://h/m:stream?alt=sse&key=AIzaShort", "http://h/m:stream?alt=sse&key=***"),
        (f"http://h/x?api_key={SECRET}&sig=abc&n=2", "http://h/x?api_key=***&sig=***&n=2"),
        (f"http://h/x?{SECRET}", "http://h/x?***"),
        (f"http://h/x?model={SECRET}", "http://h/x?model=***"),
        ("http://h/x?X-Amz-Signature=abcd&access_token=q", "http://h/x?X-Amz-Signature=***&access_token=***"),
        ("http://h/x?z=hunter2Aa9", "http://h/x?z=***"),
        ("http://h/x?BareSecretTok3nXYZ1", "http://h/x?***"),
        ("http://h/x?beta&alt", "http://h/x?beta&alt"),
        ("http://me:word@h/x", "http://***@h/x"),
        (f"http://h/bot{SECRET}/send", "http://h/***/send"),
        ("http://h/v1/chat?api-version=2025-01-01&name=open-chat-0", "http://h/v1/chat?api-version=2025-01-01&name=open-chat-0"),
    ],
)
def test_urls_are_kept_but_for_secrets(url: str, kept: str) -> None:
    """As they were sent, to the byte, with secret values masked."""
    assert REDACTION.url(url) == kept


def test_a_command_line_loses_its_secrets() -> None:
    """Behind an option, in one, in a variable, or alone."""
    command = ["agent", "--api-key", "tiny", "--token=tiny2", "OPENAI_API_KEY=tiny3", SECRET, "-m", "gpt-5", "fix it"]
    assert REDACTION.command(command) == "agent --api-key *** --token=*** OPENAI_API_KEY=*** *** -m gpt-5 fix it"


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        (["curl", "-u", "me:pw", "-s", "http://me:pw@h/x"], "curl -u *** -s http://***@h/x"),
        (["curl", "-H", "x-api-key: abcdef", "-H", "Authorization: Bearer abcdef"], "curl -H x-api-key: *** -H Authorization: Bearer ***"),
        (["codex", "--config", 'env={"API_KEY": "abcdef"}'], 'codex --config env={"API_KEY": "***"}'),
    ],
)
def test_a_command_line_loses_what_tools_take_as_secrets(command: list[str], kept: str) -> None:
    """curl's user, headers, addresses, settings in JSON."""
    assert REDACTION.command(command) == kept


@pytest.mark.parametrize(
    ("offered", "kept"),
    [
        ("realtime, openai-beta.realtime-v1", "realtime, openai-beta.realtime-v1"),
        ("graphql-ws", "graphql-ws"),
        ("realtime, openai-insecure-api-key.abc", "realtime, openai-insecure-api-key.***"),
        ("base64url.bearer.authorization.k8s.io.abcdef", "base64url.bearer.authorization.k8s.io.***"),
        (f"chat,{SECRET}", "chat,***"),
        ("chat,hunter2Aa9", "chat,***"),
    ],
)
def test_a_key_among_websocket_protocols_is_masked(offered: str, kept: str) -> None:
    """Browsers can send it nowhere else."""
    assert REDACTION.headers((("Sec-WebSocket-Protocol", offered),)) == (("Sec-WebSocket-Protocol", kept),)


def test_what_is_shown_is_masked_without_a_trace() -> None:
    """A text and an address."""
    assert masked("http://me:pw@h/x?key=abc") == "http://***@h/x?key=***"
    assert masked("OPENAI_API_KEY=abcdef") == "OPENAI_API_KEY=***"


@given(
    st.text(string.ascii_letters + string.digits, min_size=40, max_size=60).filter(
        lambda text: any(c.isdigit() for c in text) and any(c.islower() for c in text) and any(c.isupper() for c in text)
    )
)
def test_no_random_value_gets_through(secret: str) -> None:
    """In a header that is not on the list, in one that is, in the query, in a text."""
    kept = REDACTION.headers((("x-new-secret", secret), ("accept", secret)))
    told = [*(value for _, value in kept), REDACTION.url(f"http://h/x?q={secret}&{secret}"), REDACTION.text(f"it said {secret}")]
    assert not [text for text in told if secret[:12] in text or secret[-12:] in text]


def test_addresses_in_headers_are_masked_as_addresses() -> None:
    """A page's address may hold a password or a key as well as the request's own."""
    kept = REDACTION.headers(
        (("Referer", "http://joe:pw77@h/x?api_key=1&n=2&x=qwertyuiop9Q"), ("User-Agent", "agent/1.0 key=uakeysecret1"))
    )
    assert kept == (("Referer", "http://***@h/x?api_key=***&n=2&x=***"), ("User-Agent", "agent/1.0 key=***"))


@pytest.mark.parametrize(
    "piece", ["a", "a.", "token", "key=", "eyJ", "eyJ-", "sk-", "bearer ", "token ", "://a", "aB3", "0123abcd-", "ya29."]
)
def test_long_texts_take_no_longer_than_they_are(piece: str) -> None:
    """A megabyte of what the patterns begin with: a pattern that starts again inside its own run would need hours here."""
    text = piece * (1_000_000 // len(piece))
    assert isinstance(REDACTION.text(text), str)
    assert isinstance(REDACTION.url(f"http://h/{text}?{text}"), str)
