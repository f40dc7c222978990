"""Decides what of a request's and an answer's head may be kept: an allow-list; anything else becomes a name and a keyed fingerprint.

Pure. It knows names and the look of keys, nothing of dialects' bodies: bodies are kept as they are. Masking errs on the side of hiding:
a value that looks like a key is hidden wherever it stands, even under an allowed name. It runs on the proxy's loop over what strangers
send: every pattern here takes time in proportion to the text (none begins with an unbounded run, or begins again inside one).
"""

import hmac
import re
from collections.abc import Sequence
from urllib.parse import unquote

from storage.records import REDACTED, Headers

FINGERPRINT_DIGITS = 12
"""Hex digits of a fingerprint: enough to see that two values are equal, useless without the trace's own key."""

_HTTP = """
accept accept-encoding accept-language accept-ranges age allow alt-svc cache-control connection content-disposition content-encoding
content-language content-length content-type date etag expect expires host http-referer if-none-match keep-alive last-modified origin
pragma range referer retry-after server te trailer transfer-encoding upgrade user-agent vary via x-powered-by
sec-fetch-dest sec-fetch-mode sec-fetch-site sec-websocket-extensions sec-websocket-protocol sec-websocket-version
"""
_PROVIDERS = """
anthropic-beta anthropic-client-capabilities anthropic-dangerous-direct-browser-access anthropic-version cf-cache-status cf-ray
oai-product-sku openai-beta openai-model openai-processing-ms openai-version request-id server-timing version x-app x-cache
x-goog-api-client x-openai-internal-codex-responses-lite x-openai-product-sku x-request-id x-server-timeout x-should-retry x-title
x-envoy-upstream-service-time x-vllm-version
"""
_AGENTS = """
conversation_id openhands-conversation-id originator session-id session_id thread-id x-claude-1p-request-class x-client-request-id
x-codex-beta-features x-codex-parent-thread-id x-codex-routing-hint x-codex-turn-metadata x-codex-window-id x-initiator
x-interaction-type x-litellm-session-id x-openai-subagent x-parent-session-id x-recorder-run x-service-name x-session-affinity
x-session-id
"""
KEPT_HEADERS = frozenset((_HTTP + _PROVIDERS + _AGENTS).split())
"""Names, in lower case, whose values are kept (masked where they look like keys)."""

_URL_HEADERS = frozenset(("http-referer", "origin", "referer"))

KEPT_HEADER_PREFIXES = ("anthropic-ratelimit-", "x-claude-code-", "x-playhead-", "x-ratelimit-", "x-stainless-")

_QUERY = """
after alt api-version api_version before beta client_version entrypoint includedownloadurls includeinstalled limit model n offset
order page pagesize pretty prettyprint scope stream version
"""
KEPT_QUERY = frozenset(_QUERY.split())
"""Names of query parameters, in lower case, whose values are kept (masked where they look like keys)."""

_KEY_LIKE = re.compile(
    r"""(?xi)
    (?<![a-z0-9])(?: sk|rk|pk|ak|ghp|gho|ghu|ghs|ghr|glpat|hf|gsk|nvapi|xai|pplx|r8|key|tok)[-_][A-Za-z0-9_\-]{12,}
    | github_pat_[A-Za-z0-9_]{12,}
    | xox[abposr]-[A-Za-z0-9-]{8,}
    | AIza[A-Za-z0-9_\-]{10,}
    | ya29\.[A-Za-z0-9_\-.]{4,}
    | (?<![a-z0-9])(?:AKIA|ASIA)[A-Z0-9]{12,}
    | (?<![A-Za-z0-9_\-])eyJ[A-Za-z0-9_\-]{8,}+\.[A-Za-z0-9_\-]{4,}(?:\.[A-Za-z0-9_\-]*)?
    """
)
_SCHEME = re.compile(r"(?i)\b(bearer|basic|digest|token|negotiate)(\s+|%20|\+)(?!\*\*\*)[^\s,;\"'&]{6,}")
_ASSIGNED = re.compile(
    r"""(?xi)
    (?P<name> (?: api[-_]?key | access[-_]?key | apikey | (?<![a-z0-9])key | secret | passw(?:or)?d | passwd | token | credential s?
      | signature | authorization | cookie ) [\w.\-]{0,64} )
    (?P<sep> ["']? \s* (?:=|:) \s* ["']? )
    (?! \*\*\* | (?:bearer|basic|digest|token|negotiate)\b ) [^\s"'&,;]{4,}
    """
)
_USERINFO = re.compile(r"(?i)(?<=://)[^/@\s]+(?=@)")
_LONG = re.compile(r"[A-Za-z0-9_\-+/=]{24,}")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_RUN = re.compile(r"[A-Za-z0-9]{20,}")
_SECRET_NAME = re.compile(
    r"(?i)(?:^|[^a-z])(?:k|key|sig|auth|code|pass|pwd|pw|jwt|sas|otp|pin|state|nonce)(?:$|[^a-z])"
    r"|key$|token|secret|passw|signature|credential|session|cookie|authori[sz]ation|access|oauth"
)
_PLAIN_WORD = re.compile(r"[A-Za-z]{0,24}|[0-9]{0,12}|[a-z]{1,12}[0-9]{1,6}")
_ISSUED_ID = re.compile(r"(?:msg|req|ses|resp|call|toolu|srvtoolu|chatcmpl|fc|rs|thread|conv|run|gen|prt)[_-][A-Za-z0-9]{20,32}")


class Redaction:
    """Masks with one secret key a trace, so that equal secrets stay recognisable as equal inside it and nowhere else."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def fingerprint(self, value: str) -> str:
        """`***:` and 12 hex digits of a keyed hash."""
        digest = hmac.digest(self._key, value.encode("utf-8", "surrogateescape"), "sha256")
        return f"{REDACTED}:{digest.hex()[:FINGERPRINT_DIGITS]}"

    def headers(self, headers: Headers) -> Headers:
        """The head as it may be kept: names, order and case as they were."""
        return tuple((self.text(name), self._header(name.lower(), value)) for name, value in headers)

    def _header(self, name: str, value: str) -> str:
        if name in _URL_HEADERS:
            return self.url(value)
        if name == "sec-websocket-protocol":
            return ",".join(map(self._protocol, value.split(",")))
        if name in KEPT_HEADERS or name.startswith(KEPT_HEADER_PREFIXES):
            return self.text(value)
        return self.fingerprint(value) if value else value

    def _protocol(self, offered: str) -> str:
        """One WebSocket subprotocol. Browsers can send no header of their own there, so keys travel as `openai-insecure-api-key.KEY`."""
        name, dot, _ = offered.strip().rpartition(".")
        if _is_secret_name(offered.strip()):
            return offered[: len(offered) - len(offered.lstrip())] + f"{self.text(name)}{dot}{REDACTED}"
        return offered if _is_harmless(offered.strip(), self) else REDACTED

    def url(self, url: str) -> str:
        """The URL with secret values masked as `***`; everything else as it was sent, to the byte."""
        place, mark, query = _USERINFO.sub(REDACTED, url).partition("?")
        return "/".join(map(self.text, place.split("/"))) + mark + "&".join(self._parameter(part) for part in query.split("&"))

    def _parameter(self, part: str) -> str:
        name, mark, value = part.partition("=")
        if not mark:
            return name if _is_harmless(unquote(name), self) else REDACTED
        plain = unquote(value)
        if name.lower() in KEPT_QUERY and self.text(plain) == plain:
            return part
        if _is_secret_name(name) or not _is_harmless(plain, self):
            return f"{self.text(name)}={REDACTED}"
        return part

    def text(self, text: str) -> str:
        """Free text (a header's value, an error, a process argument) with everything that looks like a key masked."""
        if len(text) < 8:
            return text
        text = _SCHEME.sub(rf"\1\2{REDACTED}", text)
        text = _ASSIGNED.sub(rf"\g<name>\g<sep>{REDACTED}", text)
        text = _KEY_LIKE.sub(REDACTED, text)
        return _LONG.sub(_mask_random, text)

    def command(self, arguments: Sequence[str]) -> str:
        """A command line in one string, its secrets masked: `--api-key X`, `KEY=...`, and whatever looks like a key."""
        shown, hide = [], False
        for argument in arguments:
            shown.append(REDACTED if hide else self.text(_USERINFO.sub(REDACTED, argument)))
            hide = argument.startswith("-") and "=" not in argument and _takes_secret(argument.lstrip("-"))
        return " ".join(shown)


def _takes_secret(option: str) -> bool:
    """Whether a secret follows this option: by its name, or because curl and the like take `NAME:PASSWORD` there."""
    return _is_secret_name(option) or option in ("u", "user", "proxy-user", "U")


def masked(text: str) -> str:
    """A text or URL to be shown to the user, with everything that looks like a key masked."""
    unkeyed = Redaction(b"")  # no fingerprint is made of a text
    return unkeyed.url(text) if "://" in text else unkeyed.text(text)


def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(unquote(name)) is not None and name.lower() not in KEPT_QUERY and name != "k"


def _is_plain(value: str) -> bool:
    return _PLAIN_WORD.fullmatch(value) is not None


def _is_harmless(value: str, redaction: Redaction) -> bool:
    """Short, and made of words and numbers as people write them: nothing a secret would look like."""
    return len(value) <= 48 and redaction.text(value) == value and all(_is_plain(word) for word in re.split(r"[^A-Za-z0-9]+", value))


def _mask_random(match: re.Match[str]) -> str:
    """Hides a long run of mixed letters and digits unless it is an id of a known make: a UUID, a hash in hex, `msg_01ABC...`."""
    value = match[0]
    rest = _UUID.sub("", value)
    for run in _RUN.findall(rest):
        if _mixes(run) and _ISSUED_ID.fullmatch(value) is None:
            return REDACTED
    return value


def _mixes(run: str) -> bool:
    return any(c.isdigit() for c in run) and any(c.islower() for c in run) and any(c.isupper() for c in run)
