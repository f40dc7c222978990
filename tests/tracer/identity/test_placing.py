"""Sessions, threads, retries and dependencies of hand-made traffic: what is recognised, and what is kept apart."""

from identity_traffic import Wire, assistant, calls, cut, result, system, user

from storage.records import FailureKind


def test_a_conversation_is_one_thread_and_each_turn_waits_for_the_one_before() -> None:
    """A request that begins with a known prompt and its answer goes on from it; the gap is from that one's end."""
    wire = Wire()
    first = wire.say([system("S"), user("Hello there")], assistant("Hi, who are you?"))
    wire.now_s += 2
    second = wire.say([system("S"), user("Hello there"), assistant("Hi, who are you?"), user("Nobody")], assistant("I see."))
    assert second.placement.thread_key == first.placement.thread_key
    assert (first.placement.number, second.placement.number) == (1, 2)
    assert first.placement.after == ()
    assert first.placement.gap_ns is None
    assert second.placement.after == (first.id,)
    assert second.placement.gap_ns == 2_000_000_000
    assert second.placement.source == "prefix"


def test_equal_first_requests_are_two_sessions_and_part_by_their_answers() -> None:
    """Two conversations with the same first words: what follows tells whose each turn is."""
    wire = Wire()
    opening = [system("S"), user("List the files")]
    one = wire.say(opening, calls(("call_one_1", "ls", {"path": "."})))
    two = wire.say(opening, calls(("call_two_1", "ls", {"path": "."})))
    assert one.placement.session_key != two.placement.session_key
    back = wire.say([*opening, calls(("call_one_1", "ls", {"path": "."})), result("call_one_1", "a")], assistant("Done."))
    forth = wire.say([*opening, calls(("call_two_1", "ls", {"path": "."})), result("call_two_1", "a")], assistant("Done."))
    assert back.placement.thread_key == one.placement.thread_key
    assert forth.placement.thread_key == two.placement.thread_key


def test_a_process_tells_equal_conversations_apart() -> None:
    """Where answers are equal too, the client's process decides."""
    wire = Wire()
    opening = [user("The same words")]
    one = wire.say(opening, assistant("The same answer"), pid=1)
    two = wire.say(opening, assistant("The same answer"), pid=2)
    more = [*opening, assistant("The same answer"), user("Go on")]
    assert wire.say(more, assistant("a"), pid=1).placement.session_key == one.placement.session_key
    assert wire.say(more, assistant("b"), pid=2).placement.session_key == two.placement.session_key


def test_tools_that_come_and_go_do_not_break_a_thread() -> None:
    """Agents add tools as they go: the conversation is what counts."""
    wire = Wire()
    tool = {"type": "function", "function": {"name": "ls", "parameters": {}}}
    first = wire.say([user("Hello there")], assistant("Hi, you."))
    second = wire.say([user("Hello there"), assistant("Hi, you."), user("More")], assistant("x"), fields={"tools": [tool]})
    assert second.placement.thread_key == first.placement.thread_key


def test_a_resumed_conversation_is_known_by_its_tool_calls() -> None:
    """The instructions and first words changed: ids of tool calls in the history are known."""
    wire = Wire()
    made = calls(("call_0123456789", "ls", {"path": "."}))
    first = wire.say([system("Monday"), user("Begin it")], made)
    later = wire.say([system("Tuesday"), user("Begin it [resumed]"), made, result("call_0123456789", "a"), user("And?")], assistant("x"))
    assert later.placement.thread_key == first.placement.thread_key
    assert later.placement.source == "calls"


def test_a_history_written_anew_is_known_by_question_and_answer() -> None:
    """aider puts other things around what was said."""
    wire = Wire()
    first = wire.say([system("S"), user("Files: a.py"), assistant("Ok."), user("Add a line")], assistant("Here is the edit."))
    later = wire.say(
        [system("S"), user("Add a line  \n"), assistant("\nHere is the edit."), user("Files: a.py b.py"), assistant("Ok."), user("Thanks")],
        assistant("x"),
    )
    assert later.placement.thread_key == first.placement.thread_key
    assert later.placement.source == "text"


def test_an_equal_request_after_a_failure_is_a_new_try() -> None:
    """Refused or cut by the upstream, then sent again: one thread, each try of the one before it."""
    wire = Wire()
    talk = [user("Try this")]
    first = wire.say(talk, assistant(""), status=429)
    wire.now_s += 1
    second = wire.say(talk, None, failure=cut())
    third = wire.say(talk, assistant("At last."))
    assert {trail.placement.thread_key for trail in (first, second, third)} == {first.placement.thread_key}
    assert second.placement.retry_of == first.id
    assert second.placement.after == (first.id,)
    assert second.placement.gap_ns == 1_000_000_000
    assert third.placement.retry_of == second.id


def test_what_is_sent_again_after_the_client_left_is_no_new_try() -> None:
    """The user pressed stop: the next run with the same words is another."""
    wire = Wire()
    first = wire.say([user("Try this")], None, failure=cut(FailureKind.CLIENT_LEFT))
    again = wire.say([user("Try this")], assistant("x"))
    assert again.placement.retry_of is None
    assert again.placement.session_key != first.placement.session_key


def test_going_on_after_a_broken_stream_is_a_new_try() -> None:
    """What had come of the broken answer, and a request to go on, is the same turn again; a new question is not."""
    wire = Wire()
    first = wire.say([user("Tell me a story")], assistant("Once upon"), failure=cut())
    resume = user("The connection dropped mid-response. Resume directly, no recap.")
    again = wire.say([user("Tell me a story"), assistant("Once upon"), resume], assistant("a time."))
    assert again.placement.retry_of == first.id
    other = Wire()
    other.say([user("Tell me a story")], assistant("Once upon"), failure=cut())
    asked = other.say([user("Tell me a story"), assistant("Once upon"), user("Stop, do this")], assistant("Yes."))
    assert asked.placement.retry_of is None


SPAWN = ("call_spawn_0001", "spawn_agent", {"task": "Count all the files", "agent_type": "counter"})


def test_a_sub_agent_is_known_by_the_words_that_started_it() -> None:
    """Its first request waits for the answer that called for it; the parent's next waits for its last."""
    wire = Wire()
    opening = [system("Main"), user("Use helpers")]
    parent = wire.say(opening, calls(SPAWN))
    child = wire.say([system("Helper"), user("Count all the files")], calls(("call_child_01", "ls", {"path": "."})))
    talk = [system("Helper"), user("Count all the files"), calls(("call_child_01", "ls", {"path": "."})), result("call_child_01", "7")]
    last = wire.say(talk, assistant("There are seven files."))
    joined = wire.say([*opening, calls(SPAWN), result("call_spawn_0001", "There are seven files.")], assistant("Seven."))
    assert child.placement.session_key == parent.placement.session_key
    assert child.placement.thread_key != parent.placement.thread_key
    assert child.placement.parent_thread_key == parent.placement.thread_key
    assert child.placement.parent_exchange_id == parent.id
    assert child.placement.after == (parent.id,)
    assert child.placement.agent == "counter"
    assert last.placement.thread_key == child.placement.thread_key
    assert last.placement.parent_exchange_id == parent.id
    assert joined.placement.thread_key == parent.placement.thread_key
    assert joined.placement.after == (parent.id, last.id)


def test_equal_sub_agents_side_by_side_are_two_threads() -> None:
    """Byte-identical first requests take one tool call each, and part by their answers."""
    wire = Wire()
    opening = [system("Main"), user("Use helpers")]
    other = ("call_spawn_0002", *SPAWN[1:])
    parent = wire.say(opening, calls(SPAWN, other))
    started = [system("Helper"), user("Count all the files")]
    made = [calls((f"call_child_0{n}", "ls", {"path": "."})) for n in (1, 2)]
    one, two = wire.say(started, made[0], at_s=5.0), wire.say(started, made[1], at_s=5.1)
    second = wire.say([*started, made[1], result("call_child_02", "7")], assistant("Seven."), at_s=7.0)
    first = wire.say([*started, made[0], result("call_child_01", "7")], assistant("Seven."), at_s=7.1)
    assert one.placement.thread_key != two.placement.thread_key
    assert first.placement.thread_key == one.placement.thread_key
    assert second.placement.thread_key == two.placement.thread_key
    assert {trail.placement.parent_thread_key for trail in (one, two, first, second)} == {parent.placement.thread_key}


def test_a_side_call_before_the_first_turn_opens_its_session() -> None:
    """A router asks first; the turn with the same words adopts its session and waits for its answer."""
    wire = Wire()
    router = wire.say([system("You are a specialized Task Routing AI."), user("Write the notes")], assistant("{}"))
    turn = wire.say([system("Main"), user("Context\nWrite the notes")], assistant("Done."))
    assert router.placement.kind == "router"
    assert turn.placement.session_key == router.placement.session_key
    assert turn.placement.after == (router.id,)


def test_a_side_call_joins_the_session_whose_words_it_repeats() -> None:
    """A title quotes the question of one of two sessions."""
    wire = Wire()
    one = wire.say([user("Paint the house")], assistant("Which colour?"))
    wire.say([user("Cut the lawn")], assistant("How short?"))
    title = wire.say([system("You are a title generator. You output ONLY a thread title."), user('"Paint the house"')], assistant("House"))
    assert title.placement.kind == "title"
    assert title.placement.session_key == one.placement.session_key
    assert title.placement.after == (one.id,)


def test_a_compacted_conversation_goes_on_in_its_thread() -> None:
    """Messages start anew with the summary that a compaction gave: the turn waits for it."""
    wire = Wire()
    first = wire.say([user("Paint the house please")], assistant("Which colour?"))
    ask = [user("Paint the house please"), assistant("Which colour?"), user("Please create a detailed summary of the conversation so far.")]
    compaction = wire.say(ask, assistant("<summary>The house shall be painted.</summary>"))
    after = wire.say([user("It was summarised: The house shall be painted."), user("Green")], assistant("Good."))
    assert compaction.placement.kind == "compaction"
    assert {trail.placement.thread_key for trail in (compaction, after)} == {first.placement.thread_key}
    assert after.placement.after == (first.id, compaction.id)


def test_a_memory_agent_behind_a_copy_of_the_conversation_is_a_thread_of_its_own() -> None:
    """It begins with all that was said, under instructions of its own."""
    wire = Wire()
    first = wire.say([system("Main"), user("Paint the house")], assistant("Which colour?"))
    copied = [user("Paint the house"), assistant("Which colour?"), user("Extract what is worth remembering.")]
    memory = system("You are now acting as the managed memory extraction subagent")
    agent = wire.say([memory, *copied], assistant("Nothing is."))
    assert agent.placement.kind == "memory"
    assert agent.placement.thread_key != first.placement.thread_key
    assert agent.placement.parent_thread_key == first.placement.thread_key


def test_an_exchange_read_late_moves_the_numbers_behind_it() -> None:
    """A stream that ended after later ones began is placed where it started."""
    wire = Wire()
    ids = (("x-session-id", "ses_0123456789"),)
    first = wire.say([user("One")], assistant("1"), headers=ids, at_s=0.0)
    third = wire.say([user("Three")], assistant("3"), headers=ids, at_s=9.0)
    second = wire.say([user("Two")], assistant("2"), headers=ids, at_s=5.0)
    assert (first.placement.number, third.placement.number, second.placement.number) == (1, 2, 2)
    assert [(moved.exchange_id, moved.number) for moved in wire.identity.corrections()] == [(third.id, 3)]
    assert wire.identity.corrections() == []


def test_identity_goes_on_from_what_it_remembered() -> None:
    """A new memory made of the trails places the rest as the old one would have."""
    wire = Wire()
    trails = [wire.say([user("Hello there")], assistant("Hi, who are you?"))]
    later = Wire(type(wire.identity)(trails))
    later.last, later.now_s = wire.last, wire.now_s
    more = later.say([user("Hello there"), assistant("Hi, who are you?"), user("Nobody")], assistant("x"))
    assert more.placement.thread_key == trails[0].placement.thread_key
    assert more.placement.number == 2


def test_a_router_without_history_is_not_that_of_an_older_session_with_the_same_words() -> None:
    """It is asked before its turn: the session that has that turn already is another."""
    wire = Wire()
    routing, words = system("You are a specialized Task Routing AI."), user("Write the notes")
    old = [wire.say([routing, words], assistant("{}")), wire.say([system("Main"), words], assistant("Done."))]
    new = [wire.say([routing, words], assistant("{}")), wire.say([system("Main"), words], assistant("Done, too."))]
    assert old[0].placement.session_key == old[1].placement.session_key
    assert new[0].placement.session_key == new[1].placement.session_key
    assert old[0].placement.session_key != new[0].placement.session_key


def test_a_side_call_that_failed_is_tried_again_in_its_session() -> None:
    """A refused router is the same router again, though its session has nothing else yet."""
    wire = Wire()
    talk = [system("You are a specialized Task Routing AI."), user("Write the notes")]
    first = wire.say(talk, assistant(""), status=500)
    again = wire.say(talk, assistant("{}"))
    assert again.placement.session_key == first.placement.session_key
    assert again.placement.retry_of == first.id


def test_words_of_a_tool_that_starts_no_agent_are_no_sub_agent() -> None:
    """A user may type what stood in a short argument."""
    wire = Wire()
    first = wire.say([user("Begin it")], calls(("call_0001", "shell", {"description": "List files"})))
    other = wire.say([user("List files")], assistant("a b"))
    assert other.placement.session_key != first.placement.session_key


def test_a_commit_message_without_known_words_goes_to_the_session_used_last() -> None:
    """It has something to work on; how unsure that is stands beside it."""
    wire = Wire()
    wire.say([user("Paint the house")], assistant("Which colour?"))
    last = wire.say([user("Cut the lawn")], assistant("How short?"))
    commit = wire.say([system("Write a conventional commit message for this diff."), user("+ green")], assistant("feat: green"))
    assert commit.placement.session_key == last.placement.session_key
    assert commit.placement.confidence == 0.3
