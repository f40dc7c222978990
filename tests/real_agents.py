"""Real agents as the end-to-end tests start them: where they come from, how they run without a terminal, what they must do.

Each gets a folder of its own as HOME, a dummy key, and one task; the simulated model then has it write, run and read a small program.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import agent_installs

KEY = "sk-dummy-0123456789abcdef0123456789abcdef"
"""Must not be found in any trace."""
TASK = "Write a small program and run it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One agent. `client`: as `sessions` names it; `calls`: the kinds of its calls in order of start."""

    client: str
    version: str
    install: Callable[[], Path]
    arguments: tuple[str, ...]
    calls: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """Put into HOME before it starts."""
    unreported: tuple[str, ...] = ()
    """Kinds of calls that stream and do not ask for usage: their counts are unknown."""
    node: int | None = None
    """The least major version of node that it runs on, where the machine's may be older."""
    transport: str = "http1"
    """How its calls are carried."""
    simulated: tuple[str, ...] = ()
    """Further options of the simulator that it is given."""

    def environment(self, home: Path) -> dict[str, str]:
        """All that it is given: no variable of the tests' own reaches it."""
        newer = None if self.node is None else agent_installs.node(self.node)
        path = os.pathsep.join(part for part in (newer, os.environ["PATH"]) if part)
        return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", **self.variables}


TURNS = ("turn",) * 5

CLAUDE_CODE = Agent(
    client="claude-code",
    version="2.1.332",
    install=lambda: agent_installs.npm_package("claude-code", "@anthropic-ai/claude-code@2.1.332", "claude"),
    arguments=("-p", TASK, "--dangerously-skip-permissions", "--model", "claude-sonnet-4-5"),
    # IS_SANDBOX: as root it refuses to skip permissions anywhere else.
    variables={"ANTHROPIC_API_KEY": KEY, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"},
    calls=TURNS,
)
CODEX_OVER_HTTP = Agent(
    client="codex",
    version="0.171.0",
    install=lambda: agent_installs.npm_package("codex", "@openai/codex@0.171.0", "codex"),
    arguments=("exec", "--dangerously-bypass-approvals-and-sandbox", TASK),
    variables={"OPENAI_API_KEY": KEY},
    calls=TURNS,
    simulated=("--no-websocket",),
)
CODEX = replace(CODEX_OVER_HTTP, calls=("prewarm", *TURNS), transport="ws", simulated=())
OPENCODE = Agent(
    client="opencode",
    version="1.18.33",
    install=lambda: agent_installs.npm_package("opencode", "opencode-ai@1.18.33", "opencode"),
    arguments=("run", "--model", "anthropic/claude-sonnet-4-5", TASK),
    variables={
        "ANTHROPIC_API_KEY": KEY,
        "OPENCODE_CONFIG_CONTENT": json.dumps({"permission": "allow", "small_model": "anthropic/claude-sonnet-4-5"}),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    },
    calls=("title", *TURNS),
)
OPENCODE_OVER_WEBSOCKET = replace(
    OPENCODE,
    arguments=("run", "--model", "openai/gpt-5", TASK),
    variables={
        "OPENCODE_CONFIG_CONTENT": json.dumps({"permission": "allow", "small_model": "openai/gpt-5"}),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_EXPERIMENTAL_WEBSOCKETS": "1",
    },
    files={".local/share/opencode/auth.json": json.dumps({"openai": {"type": "api", "key": KEY}})},  # only who has logged in gets one
    transport="ws",
)
COPILOT = Agent(
    client="copilot",
    version="1.0.102",
    install=lambda: agent_installs.npm_package("copilot", "@github/copilot@1.0.102", "copilot"),
    arguments=("-p", TASK, "--allow-all-tools"),
    variables={
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_MODEL": "gpt-5.4",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_PROVIDER_TRANSPORT": "websockets",
        "COPILOT_PROVIDER_WIRE_API": "responses",
    },
    node=22,
    calls=TURNS,
    transport="ws",
)
MINI_SWE_AGENT = Agent(
    client="mini-swe-agent",
    version="2.4.6",
    install=lambda: agent_installs.python_environment("mini-swe-agent", ["mini-swe-agent==2.4.6"]).parent / "mini",
    arguments=("--yolo", "--exit-immediately", "--model", "openai/gpt-4o", "--task", TASK),
    variables={"OPENAI_API_KEY": KEY, "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"},
    calls=TURNS,
)
AIDER = Agent(
    client="aider",
    version="0.86.2",
    install=lambda: agent_installs.python_environment("aider", ["aider-chat==0.86.2"], newest="3.12").parent / "aider",
    # It has no tools: its edits are blocks of text. The test command fails until the second edit, so it goes on by itself.
    arguments=(
        *("--model", "openai/gpt-4o", "--edit-format", "diff", "--yes-always", "--no-check-update", "--analytics-disable"),
        *("--no-show-release-notes", "--no-show-model-warnings", "--auto-test", "--test-cmd", "python3 greeting.py | grep replay"),
        *("--message", TASK),
    ),
    variables={"OPENAI_API_KEY": KEY},
    calls=("turn", "commit_message") * 2,
    unreported=("turn",),
)
GEMINI_CLI = Agent(
    client="gemini-cli",
    version="0.61.0",
    install=lambda: agent_installs.npm_package("gemini-cli", "@google/gemini-cli@0.61.0", "gemini"),
    arguments=("--yolo", "-p", TASK),
    variables={"GEMINI_API_KEY": KEY, "GEMINI_CLI_TRUST_WORKSPACE": "true"},
    files={
        ".gemini/settings.json": json.dumps(
            {"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False}}
        )
    },
    node=20,
    calls=("router", *TURNS),
)
QWEN_CODE = Agent(
    client="qwen-code",
    version="0.24.4",
    install=lambda: agent_installs.npm_package("qwen-code", "@qwen-code/qwen-code@0.24.4", "qwen"),
    arguments=("--auth-type", "openai", "--yolo", "-p", TASK),
    variables={"OPENAI_API_KEY": KEY, "OPENAI_MODEL": "qwen3-coder"},
    node=22,
    calls=TURNS,
)

ALL = (
    CLAUDE_CODE,
    CODEX,
    CODEX_OVER_HTTP,
    OPENCODE,
    OPENCODE_OVER_WEBSOCKET,
    COPILOT,
    MINI_SWE_AGENT,
    AIDER,
    GEMINI_CLI,
    QWEN_CODE,
)

# ---- how one is recorded ----------------------------------------------------------------------------------------------

PLAYHEAD = (sys.executable, "-m", "cli.main")
AGENT_SECONDS = 150


@contextmanager
def simulator(truth: Path, *more: str) -> Iterator[str]:
    """`playhead simulate` in a process of its own; its URL."""
    command = [*PLAYHEAD, "simulate", "--json", "--base-ms", "5", "--decode-tps", "1000", "--truth", str(truth), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


def listed(trace: Path, *command: str) -> Any:
    """What a command prints with --json."""
    done = subprocess.run([*PLAYHEAD, *command, "--trace", str(trace), "--json"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def repository(place: Path) -> Path:
    """A small git repository to work in."""
    place.mkdir(parents=True)
    (place / "README.md").write_text("# Sample\n")
    who = ("-c", "user.name=Sample", "-c", "user.email=sample@example.org")
    for step in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "start"]):
        subprocess.run(["git", *step], cwd=place, check=True)
    return place


def record(agent: Agent, place: Path, trace: Path, upstream: str) -> "subprocess.CompletedProcess[str]":
    """The agent under `playhead run`, from start to end, in a home and a repository of its own. Raises agent_installs.NotToBeHad."""
    executable = agent.install()
    home = place / "home"
    environment = agent.environment(home)
    for name, content in agent.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content)
    home.mkdir(parents=True, exist_ok=True)
    command = [*PLAYHEAD, "run", "--upstream", upstream, "--trace", str(trace), "--", str(executable), *agent.arguments]
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])
    return subprocess.run(
        command, cwd=repository(place / "repository"), env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=AGENT_SECONDS, check=False,
    )  # fmt: skip
