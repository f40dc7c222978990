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
from tracer.admission import PATH_PREFIX, Entrance
from tracer.doorkeeper import Doorkeeper
from tracer.upstreams import Upstream, is_loopback

SILENCE_LIMIT_S = 24 * 3600
"""A connection without a byte for so long is closed. Long reasoning sends nothing for many minutes; mitmproxy's own limit is ten."""

LAST_PORT = 65535

DRAIN_S = 3.0
"""How long exchanges in flight may go on once the recorder was told to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listener that is ready: `url` is what a client uses as its base URL, `upstream` what the user gave."""

    url: str
    upstream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`port` 0 takes free ports; otherwise the first upstream gets it, the next ones those that follow.

    `names`: by which the listeners may be asked for beside addresses and `localhost`; `secret`: that of their path, if they have one.
    """

    upstreams: tuple[Upstream, ...]
    host: str = "127.0.0.1"
    port: int = 0
    drain_s: float = DRAIN_S
    names: frozenset[str] = frozenset()
    secret: str | None = None


async def serve[T](
    recorder: Recorder, doorkeeper: Doorkeeper, settings: Settings, work: Callable[[tuple[Listener, ...]], Awaitable[T]]
) -> T:
    """Records while `work(listeners)` runs, then ends in order: no new clients, drain, interrupt the rest, shut down.

    Gives what `work` gave. Raises PlayheadError when a port is taken or an address cannot be listened on.
    """
    ready = _Ready()
    undone = [_follow_log(recorder, ready), guards.install(), doorkeeper.install()]
    master, proxyserver = _master(recorder, settings, ready)
    doorkeeper.entrances = {port: _entrance(settings, port) for port in recorder.routes}
    running = asyncio.ensure_future(master.run())  # kept until the end; a group would wrap what `work` raises
    try:
        await ready.event.wait()
        listeners = _listeners(recorder, settings, proxyserver)
        ready.all_listen = True
        return await work(listeners)
    finally:
        await _wind_down(recorder, proxyserver, settings.drain_s)
        master.shutdown()  # type: ignore[no-untyped-call]
        await running
        for undo in reversed(undone):
            undo()


class _Ready:
    """Told by mitmproxy when all its listeners were tried; `all_listen` once it is known that they do."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.all_listen = False

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
        websocket=False,  # an upgraded connection passes raw: nothing is put together, answered or packed anew on its way
        http3=False,
        ssl_verify_upstream_trusted_ca=trusted_file,
        ssl_verify_upstream_trusted_confdir=trusted_folder,
    )
    recorder.handler_of = lambda client: proxyserver.connections.get(client.id)
    return master, proxyserver


def _entrance(settings: Settings, port: int) -> Entrance:
    is_remote = not is_loopback(settings.host)
    return Entrance(address=settings.host, port=port, names=settings.names, is_remote=is_remote, secret=settings.secret)


def _ports(settings: Settings) -> list[int]:
    count = len(settings.upstreams)
    if not settings.port:
        return _free_ports(settings.host, count)
    last = settings.port + count - 1
    if last > LAST_PORT:
        raise PlayheadError(
            f"{count} upstreams from port {settings.port} on would need port {last}, and {LAST_PORT} is the last there is",
            hint=f"listen on port {LAST_PORT - count + 1} or lower, or on 0 to take free ones",
        )
    return list(range(settings.port, last + 1))


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
        if server.last_exception is not None or not server.is_running:
            wrong = server.last_exception or OSError("it did not start")
            raise _cannot_listen(settings.host, server.mode.listen_port() or 0, wrong)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    below = f"{PATH_PREFIX}{settings.secret}" if settings.secret else ""
    return tuple(
        Listener(url=f"http://{host}:{port}{below}", upstream=upstream.given)
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
    """(file, folder) of the authorities trusted for upstreams: what `SSL_CERT_FILE` names, else certifi's and the system's.

    PlayheadError where it names nothing that can be used: no upstream could be reached over TLS.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file:
        try:
            ssl.create_default_context(cafile=file)
        except OSError as wrong:  # an ssl.SSLError is one
            why = "it holds no certificates" if isinstance(wrong, ssl.SSLError) else (wrong.strerror or str(wrong)).lower()
            raise PlayheadError(
                f"SSL_CERT_FILE names {file}, which cannot be used: {why}", hint="let it name a file of certificates (PEM), or unset it"
            ) from None
        return file, folder
    return certifi.where(), folder or ssl.get_default_verify_paths().capath


def _follow_log(recorder: Recorder, ready: _Ready) -> Callable[[], None]:
    """What mitmproxy logs as an error means that something went unrecorded: it is told. Anything less is not even made.

    Nothing is told of listeners that never listened: why is raised (`_listeners`), and nothing went unrecorded.
    """

    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not ready.all_listen:
                return
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
