"""What the simulated model says: the tools of real agents, the steps of the task, JSON where JSON is asked for."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.simulator import script, toolbox
from replay.simulator.dialects import anthropic_messages, gemini, openai_chat, openai_responses
from replay.simulator.values import Asked, CallTool, Offered, Say, Step
from tracer.tokens import text_ids


def tool(name: str, *required: str, **properties: Any) -> Offered:
    """A function tool with these properties; names alone are strings."""
    return Offered(name=name, schema={"type": "object", "properties": properties, "required": list(required)})


STRING = {"type": "string"}
CLAUDE = (
    tool("Bash", "command", command=STRING, description=STRING),
    tool("Read", "file_path", file_path=STRING),
    tool("Write", "file_path", "content", file_path=STRING, content=STRING),
)


def steps(asked: Asked, name: str = "task") -> tuple[Step, ...]:
    return script.steps(asked, script=name, words=12, seed="s")


def call(asked: Asked) -> tuple[str, Any]:
    """Name and arguments of the one call in the answer."""
    (found,) = [step for step in steps(asked) if isinstance(step, CallTool)]
    return found.tool.name, json.loads(found.given) if found.tool.form == "function" else found.given


def test_a_task_in_claude_codes_tools() -> None:
    """Looks around, writes where it was told it is, runs, reads, ends the turn."""
    made = [steps(Asked(model="m", tools=CLAUDE, texts=("do it",), results=("/home/me/repo\nREADME.md",) * number)) for number in range(5)]
    calls = [next(step for step in one if isinstance(step, CallTool)) for one in made[:4]]
    assert [one.tool.name for one in calls] == ["Bash", "Write", "Bash", "Read"]
    given = [json.loads(one.given) for one in calls]
    assert given[0] == {"command": "pwd && ls"}
    assert given[1] == {"file_path": "/home/me/repo/greeting.py", "content": script.PROGRAM}
    assert given[2] == {"command": "python3 greeting.py"}
    assert given[3] == {"file_path": "/home/me/repo/greeting.py"}
    assert made[4] == (Say(script.DONE),)


def test_the_program_runs() -> None:
    """What agents are made to write is a Python program that prints two lines."""
    printed: list[str] = []
    exec(script.PROGRAM, {"print": printed.append})
    assert printed == ["hello from the recorder", "hello from the replay"]


@pytest.mark.parametrize(
    ("offered", "first", "second"),
    [
        ((tool("bash", "command", command=STRING), tool("write", filePath=STRING, content=STRING)), {"command": "pwd && ls"}, "content"),
        (
            (tool("run_shell_command", command=STRING), tool("write_file", file_path=STRING, content=STRING)),
            {"command": "pwd && ls"},
            "content",
        ),
        ((tool("exec_command", cmd=STRING),), {"cmd": "pwd && ls"}, "cmd"),
        ((tool("shell", command={"type": "array"}),), {"command": ["bash", "-lc", "pwd && ls"]}, "command"),
        ((tool("run_commands", commands={"type": "array"}),), {"commands": ["pwd && ls"]}, "commands"),
        (
            (
                tool("terminal", "command", "risk", command=STRING, risk={"enum": ["LOW", "HIGH"]}),
                tool("file_editor", command=STRING, path=STRING, file_text=STRING),
            ),
            {"command": "pwd && ls", "risk": "LOW"},
            "file_text",
        ),
    ],
)
def test_tools_of_other_agents(offered: tuple[Offered, ...], first: dict[str, Any], second: str) -> None:
    """Each agent's own names for a shell and for writing a file are understood."""
    assert call(Asked(model="m", tools=offered))[1] == first
    written = call(Asked(model="m", tools=offered, results=("ok",)))[1]
    told = written[second] if isinstance(written[second], str) else written[second][-1]
    assert script.PROGRAM in told


def test_codex_exec_takes_javascript() -> None:
    """Its tool is a custom one; files are written by its patch function."""
    codex = (Offered(name="exec", form="custom", namespace="functions"),)
    assert call(Asked(model="m", tools=codex)) == ("exec", 'const r = await tools.exec_command({"cmd":"pwd && ls"});\ntext(r);')
    name, patch = call(Asked(model="m", tools=codex, results=("Output: /r",)))
    assert name == "exec"
    assert "tools.apply_patch(" in patch
    assert "*** Add File: /r/greeting.py\\n+for name in" in patch
    assert "cat /r/greeting.py" in call(Asked(model="m", tools=codex, results=("/r", "", "")))[1]


def test_openhands_reads_with_its_editor_and_finishes_by_a_tool() -> None:
    """A client whose model must call `finish` gets that call once."""
    offered = (tool("terminal", command=STRING), tool("file_editor", command=STRING, path=STRING), tool("finish", message=STRING))
    assert call(Asked(model="m", tools=offered, results=("/r", "", "")))[1] == {"command": "view", "path": "/r/greeting.py"}
    assert call(Asked(model="m", tools=offered, results=("/r", "", "", ""))) == ("finish", {"message": script.DONE})
    assert steps(Asked(model="m", tools=offered, results=("",) * 5)) == (Say(script.DONE),)


def test_cline_reads_a_list_of_files() -> None:
    """`read_files` takes objects."""
    offered = (tool("run_commands", commands={"type": "array"}), tool("read_files", files={"type": "array"}))
    assert call(Asked(model="m", tools=offered, results=("", "", "")))[1] == {"files": [{"path": "greeting.py"}]}


def test_mini_swe_agent_ends_by_its_command() -> None:
    """With the tool, and with command blocks in text."""
    told = ("submit with echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",)
    bash = (tool("bash", command=STRING),)
    assert call(Asked(model="m", texts=told, tools=bash, results=("",) * 4))[1] == {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}
    blocks = ("answer in ```mswea_bash_command blocks",)
    said = [steps(Asked(model="m", texts=blocks, replies=("```mswea_bash_command",) * number))[0] for number in range(7)]
    assert all(isinstance(one, Say) and one.text.count("```mswea_bash_command\n") == 1 for one in said)
    assert isinstance(said[1], Say)
    assert "cat > greeting.py" in said[1].text
    assert said[4] == said[6]


def test_aiders_edit_formats() -> None:
    """A first draft, its correction, then words; or the whole file."""
    rules = ("All changes must use this *SEARCH/REPLACE block* format",)
    first = steps(Asked(model="m", system=rules))[0]
    assert isinstance(first, Say)
    assert first.text.startswith("greeting.py\n```python\n<<<<<<< SEARCH\n=======\nfor name")
    second = steps(Asked(model="m", system=rules, replies=("an example", first.text)))[0]
    assert isinstance(second, Say)
    before, after = second.text.split("=======\n")
    assert before.removeprefix("greeting.py\n```python\n<<<<<<< SEARCH\n") in first.text
    assert after.startswith(script.PROGRAM)
    assert steps(Asked(model="m", system=rules, replies=(first.text, second.text))) == (Say(script.DONE),)
    whole = steps(Asked(model="m", system=("return a *file listing*",)))[0]
    assert whole == Say(f"greeting.py\n```\n{script.PROGRAM}```\n")


def test_side_calls_get_short_answers() -> None:
    """Commit messages and titles, told by their rules."""
    assert steps(Asked(model="m", system=("Write a one-line Git commit message",))) == (
        Say("feat: greet from the recorder and the replay"),
    )
    assert steps(Asked(model="m", system=("You are a title generator.",))) == (Say("A program that greets"),)


@pytest.mark.parametrize(
    "told",
    ["Working directory: /w/r", "Primary working directory: /w/r\nx", "<cwd>/w/r</cwd>", "I'm currently working in the directory: /w/r",
     "- **Workspace Directories:**\n  - /w/r\n"],
)  # fmt: skip
def test_the_folder_is_read_from_the_prompt(told: str) -> None:
    """Where no tool has printed it yet."""
    assert call(Asked(model="m", tools=CLAUDE[2:], system=(told,)))[1]["file_path"] == "/w/r/greeting.py"


def test_tools_of_no_use_get_words() -> None:
    """An agent that can only search is talked to; so is one whose tools are forbidden."""
    for asked in (
        Asked(model="m", tools=(tool("grep", pattern=STRING),)),
        Asked(model="m", tools=CLAUDE, tool_choice="none"),
        Asked(model="m"),
    ):
        (said,) = steps(asked)
        assert isinstance(said, Say)
        assert len(said.text.split()) == 12
    assert isinstance(steps(Asked(model="m", tools=CLAUDE), "plain")[0], Say)


def test_a_forced_tool_is_called() -> None:
    """By name with the least arguments, or any of them where one is required."""
    odd = tool("classify", "label", "score", label={"enum": ["a", "b"]}, score={"type": "integer", "minimum": 3})
    assert call(Asked(model="m", tools=(*CLAUDE, odd), tool_choice="classify")) == ("classify", {"label": "a", "score": 3})
    assert call(Asked(model="m", tools=(odd,), tool_choice="required"))[0] == "classify"
    assert call(Asked(model="m", tools=(odd, *CLAUDE), tool_choice="required"))[0] == "Bash"
    assert isinstance(steps(Asked(model="m", tools=CLAUDE, tool_choice="missing"))[0], Say)
    assert toolbox.any_arguments(Offered(name="exec", form="custom")).given == "text('done');"


def test_json_is_answered_with_json_of_the_schema() -> None:
    """The least value of every kind that a schema can ask for."""
    schema = {
        "type": "object",
        "required": ["title", "n", "ok", "tags", "none", "kind", "fixed", "either", "odd"],
        "properties": {
            "title": STRING,
            "n": {"type": ["integer", "null"], "minimum": 2},
            "ok": {"type": "BOOLEAN"},
            "tags": {"type": "array", "items": {"enum": ["x"]}, "minItems": 2},
            "none": {"type": "null"},
            "kind": {"default": 7},
            "fixed": {"const": "c"},
            "either": {"anyOf": [{"type": "number"}, STRING]},
            "odd": True,
            "optional": STRING,
        },
    }
    (said,) = steps(Asked(model="m", schema=schema))
    assert isinstance(said, Say)
    assert json.loads(said.text) == {
        "title": "simulated", "n": 2,
        "ok": False, "tags": ["x", "x"], "none": None, "kind": 7, "fixed": "c", "either": 1, "odd": "simulated",
    }  # fmt: skip
    assert steps(Asked(model="m", schema={})) == (Say('{"answer":"simulated"}'),)


def test_the_answer_depends_on_the_request_and_the_seed_only() -> None:
    """Asked again the same is said; another seed says something else."""
    assert steps(Asked(model="m")) == steps(Asked(model="m"))
    assert script.talk(30, "a") != script.talk(30, "b")


@settings(deadline=None)  # the first text loads the vocabulary
@given(st.integers(1, 400), st.text())
def test_plain_talk_has_as_many_tokens_as_words(words: int, seed: str) -> None:
    """So that `--output-tokens` is exact."""
    assert len(text_ids(script.talk(words, seed))) == words


# ---- what the dialects ask -----------------------------------------------------------------------------------------


def test_an_anthropic_request_is_understood() -> None:
    """Texts, tool results, forced tools, schema, limits."""
    asked = anthropic_messages.ask(
        "/v1/messages",
        "beta=true",
        {
            "model": "c",
            "stream": True,
            "max_tokens": 9,
            "system": [{"type": "text", "text": "rules"}],
            "tools": [{"name": "Bash", "input_schema": {"type": "object"}}, {"type": "no name"}],
            "tool_choice": {"type": "tool", "name": "Bash"},
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "ok"}, {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "out"}]}]},
            ],
            "cache_salt": "s",
        },
    )
    assert (asked.system, asked.texts, asked.replies, asked.results) == (("rules",), ("hi", "ok", "out"), ("ok",), ("out",))
    assert (asked.tool_choice, asked.schema, asked.most_tokens, asked.salt, asked.streamed) == ("Bash", {"type": "object"}, 9, "s", True)
    assert [one.name for one in asked.tools] == ["Bash"]
    assert anthropic_messages.ask("/v1/messages/count_tokens", "", {}).counts_only
    assert anthropic_messages.ask("/v1/messages", "", {"tool_choice": {"type": "any"}}).tool_choice == "required"


def test_a_chat_request_is_understood() -> None:
    """Roles, tool messages, usage only when a stream asks for it, vLLM's extensions."""
    body = {
        "model": "g",
        "stream": True,
        "max_tokens": 7,
        "ignore_eos": True,
        "messages": [
            {"role": "system", "content": "rules"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "tool", "tool_call_id": "c", "content": "out"},
        ],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
        "tool_choice": "required",
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
    }
    asked = openai_chat.ask("", "", body)
    assert (asked.system, asked.results, asked.reports_usage, asked.tool_choice) == (("rules",), ("out",), False, "required")
    assert (asked.most_tokens, asked.least_tokens, asked.schema) == (7, 7, {"type": "object"})
    assert openai_chat.ask("", "", {**body, "stream_options": {"include_usage": True}}).reports_usage
    assert openai_chat.ask("", "", {**body, "stream": False}).reports_usage
    named = {"tool_choice": {"type": "function", "function": {"name": "bash"}}, "min_tokens": 3, "response_format": {"type": "json_object"}}
    other = openai_chat.ask("", "", named)
    assert (other.tool_choice, other.least_tokens, other.schema) == ("bash", 3, {})


def test_a_responses_request_is_understood() -> None:
    """Tools in the input, namespaces, custom tools, outputs of any kind; a plain string as input."""
    exec_tool = {"type": "custom", "name": "exec"}
    asked = openai_responses.ask(
        "",
        "",
        {
            "model": "g",
            "instructions": "rules",
            "input": [
                {
                    "type": "additional_tools",
                    "tools": [{"type": "namespace", "name": "functions", "tools": [exec_tool]}, {"type": "web_search"}],
                },
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "more"}]},
                {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "out"}]},
            ],
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
            "text": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
            "max_output_tokens": 5,
        },
    )
    assert asked.system == ("rules", "more")
    assert asked.results == ("out",)
    assert [(one.name, one.form, one.namespace) for one in asked.tools] == [("f", "function", None), ("exec", "custom", "functions")]
    assert (asked.most_tokens, asked.schema) == (5, {"type": "object"})
    assert openai_responses.ask("", "", {"input": "hi", "text": {"format": {"type": "json_object"}}}).texts == ("hi",)


def test_a_gemini_request_is_understood() -> None:
    """Model and kind stand in the path; calls and results are parts."""
    body = {
        "systemInstruction": {"parts": [{"text": "rules"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "out"}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"type": "object"}}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {"maxOutputTokens": 4, "responseMimeType": "application/json"},
    }
    asked = gemini.ask("/v1beta/models/g%2Fx:streamGenerateContent", "alt=sse&key=k", body)
    assert (asked.model, asked.streamed, asked.framing, asked.system) == ("g/x", True, "sse", ("rules",))
    assert (asked.results, asked.tool_choice, asked.most_tokens, asked.schema) == (("out",), "f", 4, {})
    counted = gemini.ask("/v1beta/models/g:countTokens", "", {"generateContentRequest": body})
    assert (counted.counts_only, counted.texts, counted.framing) == (True, ("hi",), "array")
    assert gemini.ask("/models/g:generateContent", "", {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}).tool_choice == "none"
