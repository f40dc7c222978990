"""The recording proxy as a program: one mitmproxy master, one loopback listener an upstream, an orderly end.

It knows mitmproxy's life cycle and nothing of exchanges: those are `tracer.addon`'s. Nothing of the user's own mitmproxy set-up is read.
"""

import asyncio
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import certifi
import platformdirs
from mitmproxy import options
from mitmproxy.addons.next_layer import NextLayer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.addons.tlsconfig import TlsConfig
from mitmproxy.master import Master

from storage.errors import PlayheadError
from tracer import guards
from tracer.addon import Recorder, Route
from tracer.upstreams import Upstream

SILENCE_LIMIT_S = 24 * 3600
"""A connection without a byte for so long is closed. Long reasoning sends nothing for many minutes; mitmproxy's own limit is ten."""

DRAIN_S = 3.0
"""How long exchanges in flight may go on once the recorder was told to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listener that is ready: `url` is what a client uses as its base URL, `upstream` what the user gave."""

    url: str
    upstream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`port` 0 takes free ports; otherwise the first upstream gets it, the next ones those that follow."""

    upstreams: tuple[Upstream, ...]
    host: str = "127.0.0.1"
    port: int = 0
    drain_s: float = DRAIN_S


async def serve[T](recorder: Recorder, settings: Settings, work: Callable[[tuple[Listener, ...]], Awaitable[T]]) -> T:
    """Records while `work(listeners)` runs, then ends in order: no new clients, drain, interrupt the rest, shut down.

    Gives what `work` gave. Raises PlayheadError when a port is taken or an address cannot be listened on.
    """
    undone = [_follow_log(recorder), guards.install()]
    ready = _Ready()
    master, proxyserver = _master(recorder, settings, ready)
    running = asyncio.ensure_future(master.run())  # kept until the end; a group would wrap what `work` raises
    try:
        await ready.event.wait()
        return await work(_listeners(recorder, settings, proxyserver))
    finally:
        await _wind_down(recorder, proxyserver, settings.drain_s)
        master.shutdown()  # type: ignore[no-untyped-call]
        await running
        for undo in reversed(undone):
            undo()


class _Ready:
    """Told by mitmproxy when all its listeners were tried."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def running(self) -> None:
        self.event.set()


def _master(recorder: Recorder, settings: Settings, ready: _Ready) -> tuple[Master, Proxyserver]:
    """A master with only the addons that a reverse proxy needs: each of mitmproxy's other 30 would cost time at every hook."""
    ports = _ports(settings)
    recorder.routes = {
        port: Route(listener=f"{settings.host}:{port}", origin=upstream.origin, base_path=upstream.base_path)
        for port, upstream in zip(ports, settings.upstreams, strict=True)
    }
    modes = [f"reverse:{upstream.origin}@{settings.host}:{port}" for port, upstream in zip(ports, settings.upstreams, strict=True)]
    master = Master(options.Options(confdir=str(_private_folder()), listen_host=settings.host, mode=modes))
    proxyserver = Proxyserver()  # type: ignore[no-untyped-call]
    master.addons.add(proxyserver, NextLayer(), TlsConfig(), recorder, ready)  # type: ignore[no-untyped-call]
    trusted_file, trusted_folder = _trusted()
    master.options.update(  # type: ignore[no-untyped-call]
        connection_strategy="lazy",  # eager: an upstream that is down leaves no flow to record
        tcp_timeout=SILENCE_LIMIT_S,
        websocket=False,  # an upgraded connection passes raw, frame by frame as it came
        http3=False,
        ssl_verify_upstream_trusted_ca=trusted_file,
        ssl_verify_upstream_trusted_confdir=trusted_folder,
    )
    recorder.handler_of = lambda client: proxyserver.connections.get(client.id)
    return master, proxyserver


def _ports(settings: Settings) -> list[int]:
    if settings.port:
        return [settings.port + number for number in range(len(settings.upstreams))]
    return _free_ports(settings.host, len(settings.upstreams))


def _free_ports(host: str, count: int) -> list[int]:
    """Ports that are free now, all held until all are known. PlayheadError when the address is not this machine's."""
    held: list[socket.socket] = []
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        held.extend(socket.create_server((host, 0), family=family) for _ in range(count))
        return [each.getsockname()[1] for each in held]
    except OSError as wrong:
        raise _cannot_listen(host, 0, wrong) from None
    finally:
        for each in held:
            each.close()


def _listeners(recorder: Recorder, settings: Settings, proxyserver: Proxyserver) -> tuple[Listener, ...]:
    for server in proxyserver.servers:
        if server.last_exception is not None:
            raise _cannot_listen(settings.host, server.mode.listen_port() or 0, server.last_exception)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return tuple(
        Listener(url=f"http://{host}:{port}", upstream=upstream.given)
        for port, upstream in zip(recorder.routes, settings.upstreams, strict=True)
    )


def _cannot_listen(host: str, port: int, wrong: BaseException) -> PlayheadError:
    number = getattr(wrong, "errno", None)
    why = os.strerror(number).lower() if number else str(wrong).splitlines()[0]
    return PlayheadError(f"cannot listen on {host}:{port}: {why}", hint="choose another port with --listen, or none to take a free one")


async def _wind_down(recorder: Recorder, proxyserver: Proxyserver, drain_s: float) -> None:
    """No new clients; exchanges in flight get their time; what is left is interrupted, so that nothing can end after the last flush."""
    await proxyserver.servers.update([])
    loop = asyncio.get_running_loop()
    deadline = loop.time() + drain_s
    while (recorder.open_exchanges or _unsent(proxyserver)) and loop.time() < deadline:  # noqa: ASYNC110 - mitmproxy tells nobody
        await asyncio.sleep(0.01)
    recorder.interrupt()
    await _hang_up(proxyserver)


async def _hang_up(proxyserver: Proxyserver) -> None:
    """Closes what clients still hold open, so that no socket is left to the interpreter's end."""
    for handler in list(proxyserver.connections.values()):
        io = handler.transports.get(handler.client)
        if io and io.handler:
            io.handler.cancel("the recorder stops")
    for _ in range(100):
        if not proxyserver.connections:
            return
        await asyncio.sleep(0.01)


def _unsent(proxyserver: Proxyserver) -> bool:
    """Whether a client has not been given all yet."""
    handlers = proxyserver.connections.values()
    writers = [handler.transports[handler.client].writer for handler in handlers if handler.client in handler.transports]
    return any(isinstance(writer, asyncio.StreamWriter) and writer.transport.get_write_buffer_size() for writer in writers)


def _private_folder() -> Path:
    """Where mitmproxy keeps its certificate authority: ours alone, never `~/.mitmproxy`; a passing one where the home cannot be written."""
    folder = platformdirs.user_data_path("playhead") / "proxy"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="playhead-proxy-"))
    return folder


def _trusted() -> tuple[str, str | None]:
    """(file, folder) of the authorities trusted for upstreams: what `SSL_CERT_FILE` names, else certifi's and the system's."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file:
        return file, folder
    return certifi.where(), folder or ssl.get_default_verify_paths().capath


def _follow_log(recorder: Recorder) -> Callable[[], None]:
    """What mitmproxy logs as an error means that something went unrecorded: it is told. Anything less is not even made."""

    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            reason = f": {record.exc_info[1]}" if record.exc_info and record.exc_info[1] else ""
            recorder.tell(f"mitmproxy: {record.getMessage()}{reason}")

    logger, teller = logging.getLogger("mitmproxy"), Teller(logging.ERROR)
    before = logger.level, logger.propagate
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    logger.addHandler(teller)

    def undo() -> None:
        logger.removeHandler(teller)
        logger.level, logger.propagate = before

    return undo
