"""The four wire formats as a server speaks them; one module each, named in `replay.simulator.routes`.

Each has `ask(path, query, body) -> Asked`, `events(answer)` for streams, `whole(answer)` and `refusal(status, reason, message)`. They are
written apart from `tracer.wire`, so that a reader's mistake there is not repeated here.
"""
