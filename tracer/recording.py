"""One recorder from its start to its end: the writer, the proxy in front of it, and what is said when recording fails.

It knows what happens while it records only as `work`, which is given the listeners and returns when recording shall end.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable

from storage.errors import PlayheadError
from storage.trace import Trace, secret
from storage.writer import Writer
from tracer import wire
from tracer.addon import Recorder
from tracer.doorkeeper import Doorkeeper
from tracer.proxy import Listener, Settings, serve
from tracer.redaction import Redaction

FLUSH_INTERVAL_S = 0.5
"""A killed recorder loses no more than what came in so long; each transaction costs as much as some thirty chunks."""

REPEAT_AFTER_S = 10.0
"""The same trouble is told again only after so long."""


class Troubles:
    """What could not be recorded, told loudly; `broken` is set for those who would rather stop."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._last: tuple[str, float] = ("", 0.0)
        self._loop = asyncio.get_running_loop()
        self.broken = asyncio.Event()
        self.first: str | None = None

    def __call__(self, text: str) -> None:
        """Tells one trouble; from any thread."""
        now = time.monotonic()
        if self.first is None:
            self.first = text
        if text != self._last[0] or now - self._last[1] > REPEAT_AFTER_S:
            self._last = (text, now)
            self._tell(f"NOT RECORDED: {text}")
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.broken.set)


async def record[T](
    trace: Trace,
    settings: Settings,
    work: Callable[[tuple[Listener, ...], Recorder], Awaitable[T]],
    *,
    tell: Callable[[str], None],
    stops_when_broken: bool = False,
) -> T | None:
    """Records into `trace` while `work` runs; all that was seen is stored when this returns.

    None when recording broke off because of `stops_when_broken`, after PlayheadError was raised. Raises PlayheadError as the writer and the
    proxy do. The traffic goes on whatever happens to the record, unless `stops_when_broken`.
    """
    troubles = Troubles(tell)
    redaction = Redaction(secret(trace))
    writer = Writer(trace, wire.split, flush_interval_s=FLUSH_INTERVAL_S, on_loss=troubles)
    recorder = Recorder(writer, redaction, on_trouble=troubles)
    doorkeeper = Doorkeeper(lambda text: tell(redaction.text(text)))
    _settle_memory()

    async def working(listeners: tuple[Listener, ...]) -> T | None:
        return await _unless_broken(work(listeners, recorder), troubles if stops_when_broken else None)

    try:
        result = await serve(recorder, doorkeeper, settings, working)
    finally:
        await asyncio.get_running_loop().run_in_executor(None, writer.close)
        if refused := doorkeeper.summary():
            tell(refused)
    if stops_when_broken and troubles.first is not None:
        raise PlayheadError(f"recording stopped: {troubles.first}", hint="leave out `--on-record-error stop` to let the traffic go on")
    return result


async def _unless_broken[T](work: Awaitable[T], troubles: Troubles | None) -> T | None:
    """What `work` gives; None when recording broke before."""
    if troubles is None:
        return await work
    working = asyncio.ensure_future(work)
    broken = asyncio.ensure_future(troubles.broken.wait())
    await asyncio.wait([working, broken], return_when=asyncio.FIRST_COMPLETED)
    broken.cancel()
    if working.done():
        return working.result()
    working.cancel()
    await asyncio.wait([working])
    return None


def _settle_memory() -> None:
    """What was imported stays: the collector need not look at it again and again while bytes pass."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
