"""The overview, the version, and how commands are found: without importing an engine."""

import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli import main as command_line
from cli.main import COMMANDS, main

ENGINES = ("sqlalchemy", "mitmproxy", "httpx", "numpy", "orjson", "msgspec", "jinja2", "tiktoken", "asyncio", "storage.trace")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"]])
def test_the_overview_costs_click_only(arguments: list[str]) -> None:
    """A fresh interpreter that shows the help has imported no engine and no command."""
    program = (
        "import sys; sys.argv = ['playhead', *sys.argv[1:]]\n"
        "from cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted(sys.modules), sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stderr.split())
    assert "click" in loaded
    assert not loaded.intersection(ENGINES)
    assert not loaded.intersection(listed.where.split(":")[0] for listed in COMMANDS)


def test_the_overview_names_every_command() -> None:
    """Each command stands under its section with its summary, in 80 columns."""
    done = CliRunner().invoke(main, ["--help"], terminal_width=80)
    assert done.exit_code == 0
    for listed in COMMANDS:
        assert f"  {listed.name} " in done.output
        assert f"{listed.section}:" in done.output
    assert max(len(line) for line in done.output.splitlines()) <= 80


@pytest.mark.parametrize("listed", COMMANDS, ids=lambda listed: listed.name)
def test_every_command_explains_itself(listed: command_line.Listed) -> None:
    """Its help fits 80 columns, shows an example, and every option says what it is for."""
    command = command_line.load(listed)
    assert command.name == listed.name
    assert f"playhead {listed.name}" in (command.help or ""), "its help has no example"
    for option in command.params:
        assert not isinstance(option, click.Option) or option.help, f"{listed.name} {option.name} has no help"
    done = CliRunner().invoke(main, [listed.name, "--help"], terminal_width=80)
    assert done.exit_code == 0
    assert max(len(line) for line in done.output.splitlines()) <= 80


def test_the_version_is_the_projects() -> None:
    """`--version` says what pyproject.toml says."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert CliRunner().invoke(main, ["--version"]).output == f"playhead {project['version']}\n"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("sesions", "did you mean sessions"), ("replya", "did you mean replay"), ("xyzzy", "see `playhead --help`")],
)
def test_a_mistyped_command_gets_its_near_matches(typed: str, hint: str) -> None:
    """Exit 2, the name, and what may have been meant."""
    done = CliRunner().invoke(main, [typed])
    assert done.exit_code == 2
    assert f"error: there is no command '{typed}'" in done.stderr
    assert hint in done.stderr


def test_wrong_usage_says_where_to_read_on() -> None:
    """Exit 2, one line, and the help to look at."""
    done = CliRunner().invoke(main, ["runs", "--no-such-option"])
    assert done.exit_code == 2
    assert done.stderr.splitlines()[0].startswith("error: No such option")
    assert "hint: " in done.stderr


def test_no_command_shows_the_overview() -> None:
    """`playhead` alone explains itself."""
    done = CliRunner().invoke(main, [])
    assert "Usage: playhead" in done.output


def test_inside_a_program_errors_are_values_of_the_exit_code() -> None:
    """Called with arguments from Python, the group ends by SystemExit like the command does."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0


@pytest.mark.parametrize("arguments", ["exchanges", "show e1 --raw request", "--version"])
def test_a_closed_stdout_is_told(arguments: str) -> None:
    """In one line: what was asked for cannot be printed. With stderr closed too there is the exit code."""
    command = f'"{sys.executable}" -P -m cli.main {arguments}'
    done = subprocess.run(["/bin/sh", "-c", f"{command} >&-"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: stdout is closed")
    assert len(done.stderr.splitlines()) == 2
    assert subprocess.run(["/bin/sh", "-c", f"{command} >&- 2>&-"], timeout=60, check=False).returncode == 1
