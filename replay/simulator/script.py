"""Decides what the simulated model says, from the request alone: the same conversation always gets the same answer. Pure.

`task` lets a real agent look around, write a small program, run it and read it, by the agent's own tools, and ends the turn. `plain`
talks. Where a client asks for JSON, forces a tool or forbids tools, that is obeyed. No state is kept between requests, so replays work.
"""

import random
import re

from replay.simulator import toolbox
from replay.simulator.values import Asked, CallTool, Say, Step
from replay.simulator.wording import packed

SCRIPTS = ("task", "plain")

FILE = "greeting.py"
PROGRAM = 'for name in ("recorder", "replay"):\n    print(f"hello from the {name}")\n'
"""What the agent is made to write and run."""
_DRAFT = PROGRAM.replace('"recorder", "replay"', '"recorder",')
DONE = f"I wrote {FILE}, ran it and read it back: it prints two greetings. The task is done."

_SIDE_CALLS = (("ommit message", "feat: greet from the recorder and the replay"), ("itle generator", "A program that greets"))
"""What the rules of a call without tools speak of (first letters vary), and a short answer that fits."""
_MINI_SWE_END = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_MINI_SWE_BLOCK = "mswea_bash_command"
_FOLDER = re.compile(r"(?:[Ww]orking (?:in the )?[Dd]irectory|[Ww]orkspace [Dd]irectories|<cwd>)[^/\n]{0,24}\n?[^/\n]{0,12}(/[^\s<`'\"*]+)")
_PRINTED_FOLDER = re.compile(r"^(?:Output: )?(/[^\s:]+)$", re.MULTILINE)
_TALK = (
    "the cache keeps what the prompt has in common with the one before and a server that reads it again need not compute it once more "
    "so every turn of a long session costs only what is new in it while the rest comes back from memory in no time at all"
)
"""Every word of it, with the blank before it, is one token."""


def steps(asked: Asked, *, script: str, words: int, seed: str) -> tuple[Step, ...]:
    """What is said and called. `words`: length of plain talk; `seed` chooses its words."""
    if asked.schema is not None and not asked.tools:
        return (Say(packed(toolbox.example(asked.schema) if asked.schema else {"answer": "simulated"}).decode()),)
    forced = _forced(asked)
    if forced is not None:
        return (forced,)
    if script == "task" and asked.tool_choice != "none":
        found = _task(asked) if asked.tools else _by_text(asked)
        if found:
            return found
    return (Say(talk(words, seed)),)


def talk(words: int, seed: str) -> str:
    """So many words, each a token, chosen by the seed."""
    rng = random.Random(seed)  # noqa: S311 - a script, not a secret
    known = _TALK.split()
    return " ".join(["the", *(rng.choice(known) for _ in range(words - 1))])


def _forced(asked: Asked) -> CallTool | None:
    """The tool that the client insists on. `required` is met by the script as long as that calls one, else by the first tool."""
    if asked.tool_choice in (None, "none"):
        return None
    if asked.tool_choice == "required":
        called = next((step for step in _task(asked) if isinstance(step, CallTool)), None)
        return called or (toolbox.any_arguments(asked.tools[0]) if asked.tools else None)
    tool = toolbox.offered(asked, (str(asked.tool_choice).lower(),))
    return None if tool is None else toolbox.any_arguments(tool)


def _task(asked: Asked) -> tuple[Step, ...]:
    """The next step by the number of tool results in the conversation; () where none of the tools can do any of it."""
    path = _path(asked)
    possible = [
        ("I will look around first.", toolbox.shell(asked, "pwd && ls")),
        ("Now I write the program.", toolbox.write(asked, path, PROGRAM)),
        ("Now I run it.", toolbox.shell(asked, f"python3 {FILE}")),
        ("And I read it once more to be sure.", toolbox.read(asked, path)),
    ]
    calls = [(text, call) for text, call in possible if call is not None]
    if not calls:
        return ()
    if len(asked.results) < len(calls):
        text, call = calls[len(asked.results)]
        return (Say(text), call)
    return _end(asked, len(calls))


def _end(asked: Asked, calls: int) -> tuple[Step, ...]:
    closing = toolbox.finish(asked, DONE)
    if any(_MINI_SWE_END in text for text in asked.texts):
        closing = toolbox.shell(asked, f"echo {_MINI_SWE_END}")
    # An agent that goes on after its closing call was answered gets words, or it would never end.
    return (Say(DONE), closing) if closing is not None and len(asked.results) == calls else (Say(DONE),)


def _path(asked: Asked) -> str:
    """Where the program goes: in the folder that a tool printed or the prompt names, else relative."""
    printed = [match[1] for text in asked.results for match in _PRINTED_FOLDER.finditer(text)]
    told = [match[1].rstrip(".,;)/") for text in (*asked.system, *asked.texts) for match in _FOLDER.finditer(text)]
    folder = next(iter(printed or told), None)
    return f"{folder}/{FILE}" if folder else FILE


def _by_text(asked: Asked) -> tuple[Step, ...]:
    """Side calls by their rules; then agents without tools, that act on blocks of text: aider's edit formats, mini-swe-agent's commands."""
    rules = "\n".join(asked.system)
    for asked_for, said in _SIDE_CALLS:
        if asked_for in rules:
            return (Say(said),)
    if "SEARCH/REPLACE" in rules:
        return _edit(sum(f"{FILE}\n" in reply and "REPLACE" in reply for reply in asked.replies))
    if "file listing" in rules:
        return (Say(f"{FILE}\n```\n{PROGRAM}```\n"),)
    if any(_MINI_SWE_BLOCK in text for text in (*asked.system, *asked.texts)):
        return _command_block(sum(_MINI_SWE_BLOCK in reply for reply in asked.replies))
    return ()


def _edit(edits: int) -> tuple[Step, ...]:
    """First a program that prints one greeting, then, when asked to go on, the second one, then words."""
    if edits == 0:
        return (Say(f"{FILE}\n```python\n<<<<<<< SEARCH\n=======\n{_DRAFT}>>>>>>> REPLACE\n```\n"),)
    if edits == 1:
        return (Say(f"{FILE}\n```python\n<<<<<<< SEARCH\n{_DRAFT}=======\n{PROGRAM}>>>>>>> REPLACE\n```\n"),)
    return (Say(DONE),)


def _command_block(commands: int) -> tuple[Step, ...]:
    todo = ("pwd && ls", f"cat > {FILE} <<'END'\n{PROGRAM}END", f"python3 {FILE}", f"cat {FILE}", f"echo {_MINI_SWE_END}")
    return (Say(f"THOUGHT: the next step.\n\n```{_MINI_SWE_BLOCK}\n{todo[min(commands, len(todo) - 1)]}\n```"),)
