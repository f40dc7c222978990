"""The log of what the simulator really did: one JSON line a model call, written when it has ended. Times are CLOCK_MONOTONIC, ns."""

import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO

import orjson

from storage.errors import PlayheadError


@dataclass(slots=True, kw_only=True)
class Row:
    """One model call. `received_ns`: its first byte was read; the others: bytes were handed to the kernel."""

    request_sha256: str
    dialect: str
    model: str | None
    status: int
    received_ns: int
    whole_ns: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Tokens that needed no prefill, also where the server was told not to report them."""
    output_tokens: int | None = None
    """Tokens that were sent; fewer than planned where the client left."""
    first_token_ns: int | None = None
    chunk_ns: list[int] = field(default_factory=list)
    client_left: bool = False


class Truth:
    """Appends rows to a file, or to nowhere."""

    def __init__(self, path: Path | None) -> None:
        self._is_told = False
        self._file: BinaryIO | None = None if path is None else _opened(path)

    def write(self, row: Row) -> None:
        """One line, on disk as far as the process is concerned."""
        if self._file is None:
            return
        try:
            self._file.write(orjson.dumps(asdict(row)) + b"\n")
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        """The disk takes no more: the server goes on answering, and says once that its log is not whole."""
        if not self._is_told:
            self._is_told = True
            print(f"the truth file is not whole: {error.strerror}; answering goes on", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _opened(path: Path) -> BinaryIO:
    """The file, readable by its owner only: it holds digests and models, no text."""
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab", buffering=0)
    except OSError as error:
        raise PlayheadError(f"the truth file cannot be written: {error}", hint="choose another path with --truth") from error
