"""A trace: the one file (or database) that holds what was recorded. Opened here, read and written by the modules beside."""

import os
from pathlib import Path
from types import TracebackType
from typing import Self

import sqlalchemy as sa

from storage import database
from storage.errors import TraceError
from storage.packing import Codec
from storage.schema import meta


class Trace:
    """An open trace. Reading is safe from several threads; `codec` compresses its blobs."""

    def __init__(self, location: str, engine: sa.Engine, codec: Codec) -> None:
        self.location = location
        self.engine = engine
        self.codec = codec
        self._file = _file_at(location)
        self.is_unkept = False
        """Whether something derived could not be saved: told once (storage.derived)."""

    @classmethod
    def open(cls, location: str | os.PathLike[str], *, create: bool = False) -> "Trace":
        """Opens a trace, creating it when asked and migrating it when older. TraceError: absent, not a trace, newer, not readable."""
        text = os.fspath(location)
        if "://" in text:
            raise TraceError(f"traces at {text.partition('://')[0]}:// are not supported yet", hint="give the path of a file")
        engine = database.connect(Path(text).expanduser(), create=create)
        try:
            return cls.on(text, engine)
        except BaseException:
            engine.dispose()
            raise

    @classmethod
    def on(cls, location: str, engine: sa.Engine) -> "Trace":
        """A trace over an engine that is open. TraceError: it has lost what belongs to it as a whole."""
        return cls(location, engine, _codec(engine))

    def is_in_place(self) -> bool:
        """Whether its path still names the file that was opened; no longer when that was deleted, moved or replaced."""
        return _file_at(self.location) == self._file

    def close(self) -> None:
        """Gives freed pages back, empties the write-ahead log and closes. A trace that others hold open stays as it is."""
        try:
            database.tidy(self.engine)
        finally:
            self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _file_at(location: str) -> tuple[int, int] | None:
    try:
        found = Path(location).expanduser().stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def default_location() -> str:
    """PLAYHEAD_TRACE, else `playhead.trace` in the platform's folder for user data."""
    if named := os.environ.get("PLAYHEAD_TRACE"):
        return named
    import platformdirs

    return str(platformdirs.user_data_path("playhead") / "playhead.trace")


def secret(trace: Trace) -> bytes:
    """32 random bytes made with the trace: the key of the fingerprints that stand for secrets in it."""
    return _kept(trace.engine, "secret")


def _codec(engine: sa.Engine) -> Codec:
    try:
        return Codec(_kept(engine, "dictionary"))
    except ValueError as error:
        raise TraceError(f"the trace's dictionary is damaged: {error}", hint=database.DAMAGE_HINT) from error


def _kept(engine: sa.Engine, key: str) -> bytes:
    with engine.connect() as connection:
        found = connection.scalar(sa.select(meta.c.content).where(meta.c.key == key))
    if not found:
        raise TraceError(f"the trace has lost its {key}", hint=database.DAMAGE_HINT)
    return bytes(found)
