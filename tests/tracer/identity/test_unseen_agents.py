"""Agents of no known name: what they send is told by its form."""

from identity_traffic import Wire, assistant, calls, result, system, user

TOOL = {"tools": [{"type": "function", "function": {"name": "ls", "parameters": {}}}]}
SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object", "properties": {"title": {}}}}}}


def test_a_question_without_tools_beside_turns_with_tools_is_asked_on_the_side() -> None:
    """No wording gives it away; the client's turns offer tools, this one none."""
    wire = Wire()
    turn = wire.say([system("Main"), user("Look into the matter")], assistant("I have looked."), fields=TOOL)
    aside = wire.say([system("Other"), user("Zork: Look into the matter")], assistant("Mood: calm"))
    assert (aside.kind, aside.placement.session_key) == ("side", turn.placement.session_key)
    assert aside.placement.thread_key == turn.placement.thread_key


def test_the_form_of_the_answer_names_a_title() -> None:
    """A schema with a title and no tools."""
    assert Wire().say([user("Zork")], assistant("{}"), fields=SCHEMA).kind == "title"


def test_a_summary_is_known_when_it_is_told_again() -> None:
    """The answer of a call on the side opens the new history: it was a compaction."""
    wire = Wire()
    talk = [system("Main"), user("Look into the matter"), assistant("I have looked."), user("And further")]
    wire.say(talk[:2], assistant("I have looked."), fields=TOOL)
    old = wire.say(talk, assistant("Nothing there."), fields=TOOL)
    summary = "The user wants the matter looked into; it was, and nothing was found in any of the places named."
    made = wire.say([system("Zork"), user("Zork: I have looked. And further")], assistant(summary))
    assert made.kind == "side"
    new = wire.say([system("Main"), user(f"<zork>{summary}</zork> Go on")], assistant("So I do."), fields=TOOL)
    assert new.placement.session_key == old.placement.session_key
    assert wire.identity.memory.trails[made.id].kind == "compaction"
    assert (new.placement.compaction_of, new.placement.compacted_by) == (old.id, made.id)


def test_a_sub_agent_with_a_session_id_of_its_own_belongs_to_its_parent() -> None:
    """No header names the parent; the tool call's words open the new session."""
    wire = Wire()
    spawn = ("call_spawn_0001", "run_task", {"prompt": "Count all the files below here"})
    parent = wire.say([user("Use helpers")], calls(spawn), headers=(("x-session-id", "ses_parent_01"),), fields=TOOL)
    mine = {"headers": (("x-session-id", "ses_child_0001"),), "fields": TOOL}
    child = wire.say([system("Helper"), user("Count all the files below here")], assistant("Seven."), **mine)
    more = wire.say(
        [system("Helper"), user("Count all the files below here"), assistant("Seven."), user("Sure?")], assistant("Yes."), **mine
    )
    assert child.placement.session_key == more.placement.session_key == parent.placement.session_key
    assert child.placement.thread_key == more.placement.thread_key != parent.placement.thread_key
    assert child.placement.parent_call == "call_spawn_0001"


def test_other_clients_words_are_not_gone_on_from() -> None:
    """Two programs that say the same are two."""
    wire = Wire()
    one = wire.say([user("The same words")], assistant("The same answer"), client="one/1")
    two = wire.say([user("The same words"), assistant("The same answer"), user("More")], assistant("x"), client="two/1")
    assert one.placement.session_key != two.placement.session_key


def test_a_fork_names_the_session_it_left() -> None:
    """A new id, the conversation of an old one."""
    wire = Wire()
    made = calls(("call_look_0001", "ls", {"path": "."}))
    old = wire.say([user("Begin it")], made, headers=(("x-session-id", "ses_old_00001"),))
    talk = [user("Begin it"), made, result("call_look_0001", "a"), user("Elsewhere")]
    new = wire.say(talk, assistant("Yes."), headers=(("x-session-id", "ses_new_00001"),))
    assert new.placement.session_key != old.placement.session_key
    assert new.placement.forked_from == old.placement.session_key
