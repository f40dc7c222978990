"""`playhead simulate`: a model server for all four dialects, with a real prefix cache and known timing, until it is stopped."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli import console, options

if TYPE_CHECKING:
    from replay.simulator.prepare import Settings

_RULES = ("vllm", "sglang", "llama_cpp")
_OPTIONS = (
    click.option("--listen", default="127.0.0.1:0", show_default=True, metavar="HOST:PORT", help="Where to listen; port 0: any free one."),
    click.option("--rules", type=click.Choice(_RULES), default="vllm", show_default=True, help="Whose cache to have."),
    click.option("--block", type=click.IntRange(min=1), metavar="N", help="Tokens in a block. [vllm 16, others 1]"),
    click.option("--capacity", type=click.IntRange(min=1), metavar="TOKENS", help="Size of the cache, least recently used out. [infinite]"),
    click.option("--ttl", type=click.FloatRange(min=0), metavar="S", help="Forget what no request has used for so long. [never]"),
    click.option("--base-ms", type=click.FloatRange(min=0), default=10.0, show_default=True, metavar="MS", help="Fixed part of the TTFT."),
    click.option(
        "--prefill-tps",
        type=click.FloatRange(min=1),
        default=20000.0,
        show_default=True,
        metavar="N",
        help="Uncached prompt tokens a second.",
    ),
    click.option(
        "--decode-tps", type=click.FloatRange(min=1), default=200.0, show_default=True, metavar="N", help="Output tokens a second."
    ),
    click.option("--model", metavar="NAME", help="Have this model only. [any name is taken]"),
    click.option("--context", type=click.IntRange(min=1), metavar="TOKENS", help="Refuse longer prompts. [no limit]"),
    click.option(
        "--script",
        type=click.Choice(["task", "plain"]),
        default="task",
        show_default=True,
        help="task: have an agent write, run and read a small program with its own tools; plain: talk.",
    ),
    click.option(
        "--output-tokens", type=click.IntRange(min=1), default=40, show_default=True, metavar="N", help="Tokens of a plain answer."
    ),
    click.option("--no-report", is_flag=True, help="Do not tell cached tokens in usage."),
    click.option("--api-key", metavar="KEY", help="Refuse other keys. [any or none is taken]"),
    click.option("--fail", type=click.FloatRange(0, 1), default=0.0, metavar="RATE", help="Answer this share as overloaded."),
    click.option("--no-websocket", is_flag=True, help="Refuse WebSockets with 426, as a server that speaks HTTP only."),
    click.option("--seed", type=int, default=0, metavar="N", help="Chooses words, ids and failures. [0]"),
    click.option("--truth", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Append a JSON line a request."),
    options.json_option,
)


_FINITE = ("ttl", "base_ms", "prefill_tps", "decode_tps", "fail")
"""What click takes as nan or inf, and no server can be timed by."""


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@_with_options
def simulate(listen: str, as_json: bool, **chosen: Any) -> None:
    """Be a model server with a real prefix cache and known timing, until stopped.

    Speaks Anthropic Messages, OpenAI Chat Completions and Responses, and Gemini. The time to the first token is the fixed part plus
    the uncached prompt tokens; requests do not slow each other. Tokens are o200k over each element of the prompt.

    \b
    Example: playhead simulate --capacity 50000 --listen 127.0.0.1:8000
    """
    import asyncio

    from replay.simulator.server import serve

    for name in _FINITE:
        if chosen[name] is not None and not math.isfinite(chosen[name]):
            raise click.BadParameter(f"{chosen[name]} is not a number to reckon with", param_hint="--" + name.replace("_", "-"))
    host, _, port = listen.rpartition(":")
    if not port.isdigit():
        raise click.BadParameter(f"{listen} is not HOST:PORT", param_hint="--listen")

    def announce(url: str) -> None:
        if as_json:
            console.document({"event": "listening", "url": url})
        else:
            console.say(f"simulating {chosen['rules']} on {url} (Ctrl-C ends it)")

    asyncio.run(serve(_settings(chosen), host.strip("[]") or "127.0.0.1", int(port), announce))


def _settings(chosen: dict[str, Any]) -> "Settings":
    from replay.simulator.cache import RULES
    from replay.simulator.prepare import Settings
    from replay.simulator.timing import Timing

    return Settings(
        timing=Timing(fixed_ns=round(chosen["base_ms"] * 1e6), prefill_tps=chosen["prefill_tps"], decode_tps=chosen["decode_tps"]),
        rules=chosen["rules"],
        block_tokens=chosen["block"] or RULES[chosen["rules"]],
        capacity_tokens=chosen["capacity"],
        ttl_ns=None if chosen["ttl"] is None else round(chosen["ttl"] * 1e9),
        model=chosen["model"],
        context_tokens=chosen["context"],
        output_tokens=chosen["output_tokens"],
        script=chosen["script"],
        reports_cached=not chosen["no_report"],
        api_key=chosen["api_key"],
        fail_rate=chosen["fail"],
        seed=chosen["seed"],
        truth=chosen["truth"],
        websocket=not chosen["no_websocket"],
    )
