"""The variables of `playhead env`: they are what the recipes say, and a shell can evaluate them."""

import json
import subprocess

from click.testing import CliRunner

from cli.main import main

URL = "http://127.0.0.1:8080"


def test_a_shell_takes_the_lines_as_they_are() -> None:
    """Evaluated by a shell, Claude Code's base URL is the recorder, and loopback is asked without the user's proxy."""
    done = CliRunner().invoke(main, ["env", "claude", "--url", URL + "/"])
    script = done.output + 'printf "%s %s" "$ANTHROPIC_BASE_URL" "$NO_PROXY"'
    printed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True, env={}).stdout
    assert printed == f"{URL} 127.0.0.1,localhost,::1"


def test_what_needs_arguments_stands_in_a_comment() -> None:
    """Codex takes no variable: the command to type is shown, and evaluating it does nothing."""
    lines = CliRunner().invoke(main, ["env", "codex", "--url", URL]).output.splitlines()
    assert lines[-1] == f"# start it as: codex -c 'openai_base_url=\"{URL}/v1\"'"
    assert all(line.startswith("export ") for line in lines[:-1])


def test_an_unknown_agent_gets_the_usual_variables_as_json() -> None:
    """Every provider's base URL, OpenAI's with its version."""
    found = json.loads(CliRunner().invoke(main, ["env", "my-agent", "--url", URL, "--json"]).output)
    assert found["arguments"] == []
    assert found["variables"]["OPENAI_BASE_URL"] == f"{URL}/v1"
    assert found["variables"]["ANTHROPIC_BASE_URL"] == URL
    assert found["variables"]["GOOGLE_GEMINI_BASE_URL"] == URL


def test_the_recorders_address_must_be_given() -> None:
    """Wrong usage: exit 2, and the option that is missing."""
    done = CliRunner().invoke(main, ["env", "claude"])
    assert done.exit_code == 2
    assert "--url" in done.stderr
