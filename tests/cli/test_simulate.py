"""`playhead simulate` as its user starts it."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.simulate import simulate


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_ends_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """One JSON line when it can be used; exit 0 on either signal."""
    command = [sys.executable, "-m", "cli.main", "simulate", "--json", "--truth", str(tmp_path / "t"), "--ttl", "60", "--capacity", "99"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        ready = json.loads(child.stdout.readline())
        assert ready["event"] == "listening"
        with urllib.request.urlopen(ready["url"] + "/health", timeout=10) as answer:
            assert answer.status == 200
        child.send_signal(number)
        assert child.wait(10) == 0


def test_an_address_without_a_port_is_wrong_usage() -> None:
    """Told by name."""
    result = CliRunner().invoke(simulate, ["--listen", "127.0.0.1"])
    assert result.exit_code == 2
    assert "HOST:PORT" in result.output
