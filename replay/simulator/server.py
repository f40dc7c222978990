"""Starts the simulated server on a loopback address and ends it on SIGINT or SIGTERM."""

import asyncio
import ipaddress
import itertools
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from replay.simulator.connection import Connection, Open
from replay.simulator.prepare import Settings
from replay.simulator.service import Service
from storage.errors import PlayheadError
from tracer import tokens

_BACKLOG = 512
_LAST_PORT = 65535


async def serve(settings: Settings, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serves until a signal comes; `announce` gets the URL once it can be used. PlayheadError: the address cannot be had."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve_until(stop, settings, (host, port), announce)


async def serve_until(stop: asyncio.Event, settings: Settings, address: tuple[str, int], announce: Callable[[str], None]) -> None:
    """As `serve`, ended by an event; for use inside another program."""
    service = Service(settings)
    try:
        with _listener(*address) as listener:
            tokens.text_ids("ready")  # the vocabulary takes a moment to load: not at the cost of the first request
            await _serve(stop, service, listener, announce)
    finally:
        service.truth.close()


async def _serve(stop: asyncio.Event, service: Service, listener: socket.socket, announce: Callable[[str], None]) -> None:
    open_ones: set[Open] = set()
    serials = itertools.count().__next__
    # One thread: prompts are counted in the order in which they came, and the loop stays free to send on time.
    with ThreadPoolExecutor(1, thread_name_prefix="simulator") as worker:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(service, worker, open_ones, serials), sock=listener, backlog=_BACKLOG)
        host, port = listener.getsockname()[:2]
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        await stop.wait()
        server.close()
        for connection in tuple(open_ones):
            connection.close()
        await asyncio.sleep(0)  # lets the connections note what was cut


def _listener(host: str, port: int) -> socket.socket:
    if not _is_loopback(host):
        raise PlayheadError(f"the simulator listens on this machine only, not on {host}", hint="use --listen 127.0.0.1:PORT")
    if port > _LAST_PORT:
        raise PlayheadError(f"there is no port {port}", hint="choose one up to 65535, or 0 for any that is free")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PlayheadError(f"cannot listen on {host}:{port}: {reason}", hint="choose another port with --listen, or 0 for any") from None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
