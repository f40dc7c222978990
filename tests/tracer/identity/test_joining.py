"""Sub-agents: which tool call started them, whether their parent waited, where their result came back, and whose time gaps were."""

from identity_traffic import SECOND_NS, Wire, assistant, calls, result, system, user

from storage.records import Join

TASK = "Count all the files below here"
SPAWN = ("call_spawn_0001", "spawn_agent", {"task": TASK, "agent_type": "counter"})
TWIN = ("call_spawn_0002", "spawn_agent", {"task": TASK})


def test_a_parent_that_waits_for_its_agent() -> None:
    """The tool call is known, and the turn that carries the result depends on the agent's last; handing over is the program's time."""
    wire = Wire()
    opening = [user("Use helpers")]
    first = wire.say(opening, calls(SPAWN))
    helper = wire.say([system("Helper"), user(TASK)], assistant("There are seven files."), takes_s=3)
    back = wire.say([*opening, calls(SPAWN), result("call_spawn_0001", "There are seven files.")], assistant("Seven."), at_s=5)
    assert helper.placement.parent_call == "call_spawn_0001"
    assert helper.placement.parent_exchange_id == first.id
    assert back.placement.joins == (Join(helper.placement.thread_key, "foreground", is_joined=True),)
    assert back.placement.after == (first.id, helper.id)
    assert (back.placement.gap.harness_ns, back.placement.gap.tool_ns) == (SECOND_NS, None)
    assert [(tool.call_id, tool.took_ns, tool.source) for tool in back.placement.gap.tools] == [
        ("call_spawn_0001", 3 * SECOND_NS, "thread")
    ]


def test_an_agent_that_goes_on_behind_its_parents_back() -> None:
    """Its tool call is answered at once; what it found comes later, as a message."""
    wire = Wire()
    opening = [user("Use helpers")]
    launched = [*opening, calls(SPAWN), result("call_spawn_0001", "Launched.")]
    wire.say(opening, calls(SPAWN))
    wire.say(launched, assistant("I wait."), at_s=1.1)
    helper = wire.say([system("Helper"), user(TASK)], assistant("There are seven files."), at_s=3)
    assert helper.placement.joins == (Join(helper.placement.thread_key, "background", is_joined=False),)
    told = wire.say([*launched, assistant("I wait."), user("<done>There are seven files.</done>")], assistant("Good."), at_s=9)
    assert told.placement.joins == (Join(helper.placement.thread_key, "background", is_joined=True),)
    assert helper.id in told.placement.after


def test_what_looked_finished_and_goes_on_was_in_the_background() -> None:
    """The parent went on with the launch as result; the agent's next turn shows that it was not over."""
    wire = Wire()
    opening, helping = [user("Use helpers")], [system("Helper"), user(TASK)]
    look = calls(("call_look_0001", "ls", {"path": "."}))
    wire.say(opening, calls(SPAWN))
    wire.say(helping, look)
    seen = wire.say([*opening, calls(SPAWN), result("call_spawn_0001", "Launched.")], assistant("I wait."), at_s=4)
    assert [join.mode for join in seen.placement.joins] == ["foreground"]
    more = wire.say([*helping, look, result("call_look_0001", "a b")], assistant("Two files."), at_s=6)
    assert more.placement.joins == (Join(more.placement.thread_key, "background", is_joined=False),)
    assert wire.identity.memory.threads[more.placement.thread_key].mode == "background"


def test_twins_are_undecided_until_their_results_part_them() -> None:
    """Two equal tool calls: which agent is whose is not said before the results are back, and corrected then."""
    wire = Wire()
    opening, helping = [user("Use helpers")], [system("Helper"), user(TASK)]
    wire.say(opening, calls(SPAWN, TWIN))
    one = wire.say(helping, assistant("There are seven files."))
    two = wire.say(helping, assistant("It cannot be said."))
    assert one.placement.thread_key != two.placement.thread_key
    assert (one.placement.parent_call, two.placement.parent_call) == (None, None)
    results = [result("call_spawn_0001", "It cannot be said."), result("call_spawn_0002", "There are seven files.")]
    wire.say([*opening, calls(SPAWN, TWIN), *results], assistant("Well."), at_s=9)
    corrected = {place.exchange_id: place.parent_call for place in wire.identity.corrections()}
    assert corrected == {one.id: "call_spawn_0002", two.id: "call_spawn_0001"}


def test_an_agent_is_known_by_its_name_where_its_words_are_hidden() -> None:
    """Codex encrypts the task: the name it gives the agent stands in the tool call."""
    wire = Wire()
    ids = (("session-id", "0a22ea8f-0000"), ("thread-id", "0a22ea8f-0000"))
    mine = (("session-id", "0a22ea8f-0000"), ("thread-id", "0b22ea8f-0001"), ("x-openai-subagent", "/root/counter"))
    wire.say([user("Use helpers")], calls(("call_spawn_0009", "spawn_agent", {"task_name": "counter", "message": "..."})), headers=ids)
    helper = wire.say([system("Helper"), user("gAAAAB")], assistant("Seven."), headers=mine)
    assert helper.placement.parent_call == "call_spawn_0009"


def test_the_agents_own_measure_of_its_tools_beats_the_gap() -> None:
    """Claude Code sends how long each tool took: the rest of the gap was its own."""
    wire = Wire()
    opening = [user("Look around")]
    made = calls(("call_look_0001", "Bash", {"path": "."}), ("call_look_0002", "Read", {"path": "x"}))
    wire.say(opening, made)
    measured = (("x-claude-code-prev-tool-durations", "Bash=400,Read=100"),)
    answered = [*opening, made, result("call_look_0001", "a"), result("call_look_0002", "b")]
    gap = wire.say(answered, assistant("x"), at_s=2, headers=measured).placement.gap
    assert (gap.tool_ns, gap.harness_ns) == (SECOND_NS // 2, SECOND_NS // 2)
    assert [(tool.name, tool.took_ns, tool.source) for tool in gap.tools] == [
        ("Bash", 400_000_000, "header"),
        ("Read", 100_000_000, "header"),
    ]


def test_whose_time_a_gap_was() -> None:
    """Tool results: the tools'. New words: the human's. A new try: the program's."""
    wire = Wire()
    talk = [user("Look around")]
    made = calls(("call_look_0001", "ls", {"path": "."}))
    wire.say(talk, made)
    talk += [made, result("call_look_0001", "a")]
    tool = wire.say(talk, assistant("Seen."), at_s=2).placement.gap
    talk += [assistant("Seen."), user("And now this")]
    human = wire.say(talk, assistant(""), at_s=7, status=529)
    again = wire.say(talk, assistant("Yes."), at_s=9)
    assert (tool.tool_ns, tool.human_ns, tool.harness_ns) == (SECOND_NS, None, None)
    assert (human.placement.gap.human_ns, human.placement.gap.tool_ns) == (4 * SECOND_NS, None)
    assert again.placement.retry_of == human.id
    assert again.placement.gap.harness_ns == SECOND_NS
