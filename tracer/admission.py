"""May this request enter the listener? A web page may not: browsers reach loopback, and behind the recorder stand servers and a trace.

Pure. Against DNS rebinding a request must name the listener by an address, `localhost` or a name that was allowed; a page of another site
is told by what browsers say of it and scripts cannot forge (`Origin`, `Sec-Fetch-Site`). It knows nothing of mitmproxy or of dialects.
"""

import hmac
import ipaddress
import re
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

PATH_PREFIX = "/k/"
"""What a path begins with where the listener has a secret path: `/k/SECRET/...`."""

FEWEST_SECRET_CHARACTERS = 8
_SECRET = re.compile(rf"[A-Za-z0-9._~\-]{{{FEWEST_SECRET_CHARACTERS},200}}")

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+)(?::(?P<port>[0-9]{0,5}))?")
_SHOWN = 80


class Refusal(NamedTuple):
    """Why a request may not enter. `kind`: a word to count by; `message`: what is wrong and what to do, for who asked."""

    kind: str
    status: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request says of where it goes and whence it comes, as it was sent.

    `hosts`: every `Host` line; `authority`: of a target in absolute form, of CONNECT, or HTTP/2's `:authority`.
    """

    hosts: tuple[str, ...] = ()
    authority: str = ""
    is_http2: bool = False
    origins: tuple[str, ...] = ()
    fetch_sites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """Who may enter one reverse listener. `names`: allowed beside addresses and `localhost`, in lower case.

    `is_remote`: it listens beyond loopback, and any address may stand for it (behind a mapped port it is not the machine's own): what
    rebinding needs is a name. `secret`: everything must be asked for below `/k/SECRET`.
    """

    address: str = "127.0.0.1"
    port: int
    names: frozenset[str] = frozenset()
    is_remote: bool = False
    secret: str | None = None


def allowed_name(text: str) -> str:
    """A name as `--allow-host` takes it, as it is compared: lower case, without port and trailing dot. ValueError when it is none."""
    found = _HOST.fullmatch(text.strip())
    if found is None or found["port"] is not None or "*" in text:
        raise ValueError(f"not the name of a host: {text}")
    return _plain(found["name"])


def is_secret(text: str) -> bool:
    """Whether the text can be a secret path: 8 to 200 letters, digits and `-._~`, so that it stands in a URL as it is."""
    return _SECRET.fullmatch(text) is not None


def refusal(entrance: Entrance, asked: Asked) -> Refusal | None:
    """Why the request may not enter, or None. What it names first, then whose page sent it."""
    return _misdirected(entrance, asked) or _of_another_site(entrance, asked)


def below_secret(secret: str, path: bytes) -> bytes | None:
    """The path without `/k/SECRET`; None when it is not below it. The comparison takes as long for a near miss as for a wild one."""
    begin = PATH_PREFIX.encode()
    place, mark, query = path.partition(b"?")
    given, _, rest = place.removeprefix(begin).partition(b"/")
    is_below = place.startswith(begin) and hmac.compare_digest(given, secret.encode())
    return b"/" + rest + mark + query if is_below else None


def no_secret() -> Refusal:
    """Why what is not below the secret path may not enter; nothing of what was asked stands in it."""
    return Refusal(
        "secret path",
        403,
        "this recorder answers only below its secret path, http://HOST:PORT/k/SECRET: use the base URL it was started with",
    )


# ---- what it names -------------------------------------------------------------------------------------------------


def _misdirected(entrance: Entrance, asked: Asked) -> Refusal | None:
    if len(asked.hosts) > 1:
        return Refusal("several hosts", 400, "there is more than one Host header (RFC 9112, section 3.2)")
    for named in (asked.authority, *asked.hosts):
        if named and not _is_here(entrance, named):
            return _other_host(named)
    if asked.authority and not asked.is_http2 and _port(asked.authority) != entrance.port:
        message = f"{_shown(asked.authority)} is not this listener, which is no forward proxy: unset HTTP_PROXY, or record with --forward"
        return Refusal("not a forward proxy", 403, message)
    return None


def _other_host(named: str) -> Refusal:
    found = _HOST.fullmatch(named)
    hint = f"if it is yours, start playhead with --allow-host {_shown(found['name'])}" if found else "use the address that it printed"
    return Refusal("host", 403, f"the recorder does not go by the name {_shown(named)} (DNS rebinding would make it); {hint}")


def _is_here(entrance: Entrance, named: str) -> bool:
    found = _HOST.fullmatch(named)
    if found is None:
        return False
    name = _plain(found["name"])
    return name in entrance.names or _is_local_name(name) or (_is_address(name) if entrance.is_remote else _is_own(entrance, name))


def _is_own(entrance: Entrance, name: str) -> bool:
    """Whether it is a loopback address, or the one listened on."""
    return _is_loopback(name) or name == _plain(entrance.address)


def _is_local_name(name: str) -> bool:
    """`localhost` and what is below it: nobody can own such a name, and browsers ask no name server for it (RFC 6761, section 6.3)."""
    return name == "localhost" or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _plain(name: str) -> str:
    """A name as it is compared: case, one trailing dot and an IPv6 address's brackets aside."""
    return name.strip("[]").lower().removesuffix(".")


def _port(named: str) -> int | None:
    found = _HOST.fullmatch(named)
    return None if found is None else int(found["port"] or 80)


# ---- whose page sent it --------------------------------------------------------------------------------------------


def _of_another_site(entrance: Entrance, asked: Asked) -> Refusal | None:
    """`Origin` decides where there is one: a page on another port of loopback is cross-site too. Without it `Sec-Fetch-Site` does."""
    for origin in asked.origins:
        if not _may_ask(entrance, origin):
            return Refusal("origin", 403, f"the page of {_shown(origin)} may not use the recorder: only programs and local pages may")
    if not asked.origins and any(site.lower() == "cross-site" for site in asked.fetch_sites):
        return Refusal("another site", 403, "a page of another site may not use the recorder: only programs and local pages may")
    return None


def _may_ask(entrance: Entrance, origin: str) -> bool:
    """Local pages and installed programs. No web site has an origin without http(s) but `null`, which any page can make itself (a
    sandboxed frame, a file from the web); extensions, webviews and desktop apps have schemes of their own.
    """
    scheme, separator, _ = origin.partition("://")
    if not separator:
        return False
    if scheme.lower() not in ("http", "https"):
        return True
    try:
        host = urlsplit(origin).hostname or ""
    except ValueError:
        return False
    name = _plain(host)
    return name in entrance.names or _is_local_name(name) or _is_own(entrance, name)


def _shown(text: str) -> str:
    """What a stranger sent, short and printable; what stands before an `@` may be a password."""
    return "".join(character if character.isprintable() else "?" for character in text.rpartition("@")[2][:_SHOWN])
