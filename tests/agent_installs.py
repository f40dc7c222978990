"""Installs real agents and model servers for the end-to-end tests, into the user's cache folder, never into the project.

Each is installed once by the ordinary clients (npm, uv or pip). What cannot be had raises `NotToBeHad` with the reason.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SECONDS = 600


class NotToBeHad(Exception):  # noqa: N818
    """Something a test needs cannot be installed here; says why."""


def folder() -> Path:
    """Where everything is kept: PLAYHEAD_AGENTS, else `playhead-agents` in the user's cache folder."""
    chosen = os.environ.get("PLAYHEAD_AGENTS")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(chosen) if chosen else cache / "playhead-agents"


def run(command: Sequence[str | Path], *, seconds: float = SECONDS) -> str:
    """A command of the installation to its end; its output."""
    try:
        done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotToBeHad(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise NotToBeHad(f"{' '.join(map(str, command))[:80]}: exit {done.returncode}: {' '.join(last)}")
    return done.stdout


def npm_package(name: str, package: str, executable: str) -> Path:
    """An npm package with an exact version, e.g. `opencode-ai@1.18.33`; the path of its executable."""
    prefix = folder() / name
    found = prefix / "node_modules" / ".bin" / executable
    if not (_has(prefix, package) and found.exists()):
        if shutil.which("npm") is None:
            raise NotToBeHad("npm is not installed")
        prefix.mkdir(parents=True, exist_ok=True)
        run(["npm", "install", "--prefix", prefix, "--no-audit", "--no-fund", "--loglevel=error", package])
        _note(prefix, package)
    return found


def node(least: int) -> str | None:
    """The folder of a node of at least this major version, installed from npm where the machine's own is older; None: its own will do."""
    own = shutil.which("node")
    if own and int(run([own, "--version"]).removeprefix("v").split(".")[0]) >= least:
        return None
    return str(npm_package(f"node-{least}", f"node@{least}", "node").parent)


def python_environment(name: str, packages: Sequence[str], *, newest: str | None = None) -> Path:
    """A virtual environment with these packages; its interpreter. `newest`: the newest Python they run on, e.g. `3.12`."""
    prefix = folder() / name
    python = prefix / "bin" / "python"
    wanted = " ".join(packages)
    if not (_has(prefix, wanted) and python.exists()):
        interpreter = sys.executable if newest is None else _interpreter(newest)
        uv = _uv()
        run([uv, "venv", "--clear", "--python", interpreter, prefix] if uv else [interpreter, "-m", "venv", "--clear", prefix])
        pip(python, *packages)
        _note(prefix, wanted)
    return python


def pip(python: Path, *arguments: str) -> None:
    """Installs into an environment."""
    uv = _uv()
    run(
        [uv, "pip", "install", "--quiet", "--python", python, *arguments] if uv else [python, "-m", "pip", "install", "--quiet", *arguments]
    )


def _uv() -> str | None:
    """A uv that runs: pyenv's shim may be there and have nothing behind it."""
    kept = (Path.home() / ".pyenv" / "versions").glob("3*/bin/uv")
    return next((found for found in (shutil.which("uv"), *map(str, kept)) if found and _runs(found, "--version")), None)


def _runs(*command: str) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


def _interpreter(newest: str) -> str:
    """A Python of this version or the two before it: on the path, or among pyenv's."""
    major, minor = map(int, newest.split("."))
    for version in (f"{major}.{minor - older}" for older in range(3)):
        kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
        candidates = [*map(str, reversed(kept)), shutil.which(f"python{version}")]
        for candidate in candidates:
            if candidate and _runs(candidate, "-c", ""):
                return candidate
    raise NotToBeHad(f"no Python {newest} or a little older was found")


def _has(prefix: Path, what: str) -> bool:
    noted = prefix / ".playhead-installed"
    return noted.exists() and noted.read_text() == what


def _note(prefix: Path, what: str) -> None:
    (prefix / ".playhead-installed").write_text(what)
