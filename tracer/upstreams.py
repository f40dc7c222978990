"""Where recorded requests go and where the recorder listens: addresses as the user writes them, taken apart.

Pure. It does not know mitmproxy; the command line uses it to refuse bad addresses before anything is started.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from storage.errors import PlayheadError

DEFAULT_UPSTREAMS = ("https://api.anthropic.com", "https://api.openai.com", "https://generativelanguage.googleapis.com")

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Where requests go. `given` is the URL as the user wrote it; `base_path` is put before every path asked for."""

    given: str
    scheme: str
    host: str
    port: int
    base_path: str = ""

    @property
    def origin(self) -> str:
        """Scheme, host and port, the usual port left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}")


def parse(text: str) -> Upstream:
    """An upstream's URL taken apart; PlayheadError when it is none."""
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        port = parts.port
    except ValueError:
        raise _not_an_upstream(text) from None
    host = parts.hostname or ""
    if parts.scheme not in _DEFAULT_PORTS or not _is_host(host) or port == 0 or parts.query or parts.fragment or parts.username:
        raise _not_an_upstream(text)
    default = _DEFAULT_PORTS[parts.scheme]
    return Upstream(given=text, scheme=parts.scheme, host=host, port=port or default, base_path=parts.path.rstrip("/"))


def _is_host(host: str) -> bool:
    """Whether it can be a server's name or address: no empty label, no space or control character in it."""
    if ":" in host:  # urlsplit has seen that it is an IPv6 address
        return True
    labels = host.removesuffix(".").split(".")
    return all(labels) and not any(c.isspace() or not c.isprintable() for c in host)


def chosen(given: Sequence[str]) -> tuple[Upstream, ...]:
    """The upstreams asked for, each once, in order; the three big providers when none is."""
    each: dict[tuple[str, str], Upstream] = {}
    for text in given or DEFAULT_UPSTREAMS:
        upstream = parse(text)
        each.setdefault((upstream.origin, upstream.base_path), upstream)
    return tuple(each.values())


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().removesuffix(".") == "localhost"


def parse_listen(text: str) -> tuple[str, int]:
    """(host, port) of `HOST:PORT`, `:PORT` or `PORT`; PlayheadError when it is none of these."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdigit() or int(port) > 65535:
        raise PlayheadError(f"not an address to listen on: {text}", hint="give HOST:PORT, e.g. 127.0.0.1:8080; port 0 takes a free one")
    return host, int(port)


def _not_an_upstream(text: str) -> PlayheadError:
    place = text.rpartition("@")[2].partition("?")[0]
    return PlayheadError(
        f"not the URL of a server: {place}", hint="give scheme and host, e.g. http://127.0.0.1:8000 or https://api.openai.com"
    )
