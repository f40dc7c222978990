"""`playhead demo` as a stranger runs it: the whole job through the real commands, and nothing left behind."""

import json
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from commands import PLAYHEAD, environment, playhead

LIMIT_S = 110


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to stand in, with a package in it that is named like one of ours."""
    folder = tmp_path_factory.mktemp("somewhere")
    (folder / "cli").mkdir()
    (folder / "cli" / "__init__.py").write_text("raise AssertionError('not ours')\n")
    return folder


@pytest.fixture(scope="module")
def demo(place: Path) -> "subprocess.CompletedProcess[str]":
    """One demo, with the JSON summary. A key of the user's is in the environment and must not be needed or kept."""
    command = [*PLAYHEAD, "demo", "--json"]
    variables = environment(ANTHROPIC_API_KEY="sk-ant-of-the-user-0123456789")
    return subprocess.run(command, capture_output=True, text=True, cwd=place, env=variables, timeout=LIMIT_S, check=False)


def test_the_whole_job_is_done(demo: "subprocess.CompletedProcess[str]", place: Path) -> None:
    """21 sessions with their sub-agents recorded, two runs played without a failure, a report that stands by itself."""
    assert demo.returncode == 0, demo.stderr
    found = json.loads(demo.stdout)
    assert set(found) == {"report", "sessions", "runs", "comparison"}
    assert len(found["sessions"]) == 21
    trace = place / "demo-output" / "demo.trace"
    sessions = playhead("sessions", "--trace", trace, "--json").document
    assert {(s["threads"], s["turns"], s["side_calls"]) for s in sessions} == {(2, 8, 0)}
    runs = playhead("runs", "--trace", trace, "--json").document
    assert [(run["id"], run["turns"], run["failed"]) for run in runs] == [(run, 168, 0) for run in found["runs"]]
    assert playhead("verify", "--trace", trace).code == 0
    html = Path(found["report"]).read_text()
    assert not re.search(r"<script[^>]+src=|<link[^>]+href=|https?://(?!127\.0\.0\.1|www\.w3\.org)", html)


def test_the_comparison_shows_what_the_servers_differ_in(demo: "subprocess.CompletedProcess[str]") -> None:
    """The cache under pressure reuses less and is slower to the first token; what does not depend on it shows no difference."""
    comparison = json.loads(demo.stdout)["comparison"]
    assert comparison["cached_tokens"]["verdict"] == "worse"
    assert comparison["ttft_ms"]["verdict"] == "worse"
    assert comparison["ttft_ms"]["n_sessions"] == 21
    assert comparison["output_tokens"]["ratio"] == 1.0


def test_reuse_is_what_the_server_can_have_reused(demo: "subprocess.CompletedProcess[str]", place: Path) -> None:
    """On the server without limits, what it reported reaches the ideal and nothing impossible; the small one falls behind."""
    runs = json.loads(demo.stdout)["runs"]
    large, small = (playhead("reuse", run, "--trace", place / "demo-output" / "demo.trace", "--json").document["totals"] for run in runs)
    assert large["reported_coverage"] == small["reported_coverage"] == 1.0
    assert large["prompt_tokens"] == small["prompt_tokens"]
    assert large["reported"] > 0.98 * large["ideal"]
    assert small["reported"] < 0.9 * small["ideal"]


def test_no_key_is_kept(demo: "subprocess.CompletedProcess[str]", place: Path) -> None:
    """Neither the user's nor the one the agent sent stands in any file of the demo."""
    assert demo.returncode == 0
    for path in (place / "demo-output").iterdir():
        content = path.read_bytes()
        assert b"sk-ant-of-the-user" not in content
        assert b"not-a-key" not in content


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_leaves_nothing_running(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """Ctrl-C, or a plain kill, while the agent works: its exit code, and no process of its group after it."""
    command = [*PLAYHEAD, "demo", "--trace", str(tmp_path / "a.trace"), "-o", str(tmp_path / "report.html")]
    demo = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment(), start_new_session=True)
    try:
        assert demo.stderr is not None
        assert any("playhead record" in line for line in demo.stderr)
        deadline = time.monotonic() + LIMIT_S
        while not (tmp_path / "a.trace").exists():
            assert time.monotonic() < deadline, "the recorder never began"
            time.sleep(0.05)
        demo.send_signal(number)
        _, err = demo.communicate(timeout=LIMIT_S)
        assert demo.returncode == code
        assert "Traceback" not in err
        with pytest.raises(ProcessLookupError):
            os.killpg(demo.pid, 0)
        assert not (tmp_path / "demo-output").exists()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(demo.pid, signal.SIGKILL)
