"""How a program that runs until told to stop hears it: the first signal asks, the second insists."""

import asyncio
import os
import signal

_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_signals() -> asyncio.Event:
    """An event set by the first SIGINT, SIGTERM or SIGHUP. A second SIGINT ends the program at once: what the journal has is kept."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def heard(number: int) -> None:
        if stop.is_set() and number == signal.SIGINT:
            os._exit(128 + signal.SIGINT)
        stop.set()

    for number in _ASKING:
        loop.add_signal_handler(number, heard, number)
    return stop
