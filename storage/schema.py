"""The tables of a trace, with the words that document them: `storage.documentation` makes docs/reference/schema.md of these.

Times are integers: Unix-epoch ns where the name begins with `started`, `heartbeat`, `ready` or `made`, else ns since the exchange's start.
"""

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, LargeBinary, MetaData, Table, Text, UniqueConstraint

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Big = BigInteger().with_variant(Integer, "sqlite")


def _id(comment: str = "") -> "Column[int]":
    return Column("id", Big, primary_key=True, autoincrement=False, comment=comment or None)


meta = Table(
    "meta",
    metadata,
    Column(
        "key",
        Text,
        primary_key=True,
        comment="`secret` (32 bytes, key of the fingerprints of secrets), `dictionary` (zstd), `retired` (JSON: ids of what was deleted)",
    ),
    Column("content", LargeBinary, nullable=False),
    comment="What belongs to the trace as a whole.",
)

recorder_runs = Table(
    "recorder_runs",
    metadata,
    _id(),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("began", Text, nullable=False, comment="names the process among all that had this pid: boot and start time"),
    Column("started_ns", Big, nullable=False),
    Column("heartbeat_ns", Big, nullable=False, comment="last sign of life"),
    Column("closed_ns", Big, comment="NULL: running, or killed"),
    Column("lost", Integer, comment="exchanges that could not be kept, or not wholly; NULL: none yet, or not known"),
    comment="Who writes or wrote here: the lease of exchanges in flight.",
)

elements = Table(
    "elements",
    metadata,
    _id(),
    Column("sha256", LargeBinary(32), nullable=False, unique=True, comment="of the content"),
    Column("size", Big, nullable=False, comment="of the content, bytes"),
    Column("content", LargeBinary, nullable=False, comment="canonical bytes (decorations cut out), zstd with the trace's dictionary"),
    comment="Each distinct tool, system block, message or input item, once.",
)

nodes = Table(
    "nodes",
    metadata,
    _id(),
    Column("parent_id", Big, nullable=False, comment="the node before it in prompt order; 0: this one begins a prompt"),
    Column("element_id", Big, ForeignKey("elements.id"), nullable=False),
    Column("grp", Text, nullable=False, comment="`tool`, `system`, `message`, `item`"),
    Column("depth", Integer, nullable=False, comment="elements up to and with this one"),
    UniqueConstraint("parent_id", "element_id", "grp"),
    comment="The prefix tree: a node is an element at the end of one particular prefix. Prompts that share a prefix share its nodes.",
)

bodies = Table(
    "bodies",
    metadata,
    _id(),
    Column("sha256", LargeBinary(32), nullable=False, unique=True),
    Column("size", Big, nullable=False, comment="bytes"),
    Column("leaf_id", Big, ForeignKey("nodes.id"), comment="last node of its prompt; NULL: the body is kept whole"),
    Column(
        "content",
        LargeBinary,
        nullable=False,
        comment="zstd of the skeleton (bytes around and cut out of the elements), or of the whole body",
    ),
    comment="Each distinct request or response body, once.",
)

origins = Table(
    "origins",
    metadata,
    _id(),
    Column("listener", Text),
    Column("connection", Text, comment="names the client's connection within one recorder run"),
    Column("client_pid", Integer),
    Column("client_command", Text),
    Column("label", Text, comment="what a run wrapper said this traffic belongs to"),
    comment="Where exchanges were made.",
)

exchanges = Table(
    "exchanges",
    metadata,
    _id("`e12` on the command line is 12"),
    Column("started_ns", Big, nullable=False, comment="Unix-epoch ns: the request head was there"),
    Column("sent_ns", Big, comment="the last byte of the request had been passed on"),
    Column("headers_ns", Big, comment="the response head was complete"),
    Column("ended_ns", Big, comment="NULL: in flight, or interrupted and not yet put in its final form"),
    Column("transport", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("url", Text, nullable=False, comment="as the client asked, secrets masked"),
    Column("status", Integer),
    Column("state", Text, nullable=False, comment="what the wire alone says; a reader may know better (`calls.state`)"),
    Column("failure_kind", Text),
    Column("failure_message", Text),
    Column("failed_ns", Big),
    Column("chunks", Integer, nullable=False, comment="arrivals of the response body"),
    Column("request_bytes", Big, nullable=False),
    Column("request_sha256", LargeBinary(32), nullable=False),
    Column("response_bytes", Big, nullable=False),
    Column("response_sha256", LargeBinary(32), nullable=False),
    Column("recorder_run_id", Big, ForeignKey("recorder_runs.id"), comment="whose lease it is while in flight; NULL once it has ended"),
    Column("origin_id", Big, ForeignKey("origins.id"), nullable=False),
    Column("request_body_id", Big, ForeignKey("bodies.id"), comment="as on the wire; NULL while the upload is in the journal"),
    Column(
        "request_decoded_body_id", Big, ForeignKey("bodies.id"), comment="content-encoding removed, where there was one and it was split"
    ),
    Column("response_body_id", Big, ForeignKey("bodies.id"), comment="NULL: no response, or still in the journal"),
    Column("request_headers", LargeBinary, nullable=False, comment="zstd of JSON"),
    Column("response_headers", LargeBinary, comment="zstd of JSON; NULL: no response"),
    Column("arrivals", LargeBinary, comment="zstd of varints: zigzag steps of at_ns of all arrivals, then all sizes"),
    Column("own_ns", Big, comment="time of the recorder's own code on the way of its bytes; NULL: not measured"),
    Column("stall_ns", Big, comment="longest time the recorder's event loop stood still meanwhile; NULL: not measured"),
    Index(None, "started_ns"),
    Index(None, "recorder_run_id"),
    comment="One request and what came back.",
)

journal = Table(
    "journal",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=False),
    Column("exchange_id", Big, ForeignKey("exchanges.id"), nullable=False),
    Column("side", Text, nullable=False, comment="`request` or `response`"),
    Column("chunks", LargeBinary, nullable=False, comment="as `exchanges.arrivals`, not compressed, times not relative to the row before"),
    Column("content", LargeBinary, nullable=False, comment="the bytes, not compressed"),
    Index(None, "exchange_id"),
    comment="What has come of exchanges in flight; empty when none is.",
)

sessions = Table(
    "sessions",
    metadata,
    _id("`s3` on the command line is 3; the same key keeps its id"),
    Column("key", Text, nullable=False, unique=True),
    Column("name", Text, comment="given by the user"),
    Column("client", Text, comment="the agent's name"),
    Column("forked_from_id", Big, comment="the session whose conversation it goes on with under an id of its own"),
    Column("note", Text, comment="the user's"),
    comment="All threads of one agent run. A session that no call belongs to is not listed.",
)

threads = Table(
    "threads",
    metadata,
    _id("`t5` on the command line is 5; the same key keeps its id"),
    Column("session_id", Big, ForeignKey("sessions.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("agent", Text, comment="`main`, or a sub-agent's type or name"),
    Column("parent_thread_id", Big, ForeignKey("threads.id")),
    Column("parent_exchange_id", Big, ForeignKey("exchanges.id"), comment="the call that spawned it"),
    Column("parent_call", Text, comment="id of the tool call in its answer; NULL: none, or one of several that are alike"),
    Column("mode", Text, comment="`foreground`: its parent waited for it; `background`; NULL: not known"),
    Column("joined_exchange_id", Big, comment="its parent's call that carries its result"),
    UniqueConstraint("session_id", "key"),
    comment="The turns of one agent or sub-agent.",
)

calls = Table(
    "calls",
    metadata,
    Column("exchange_id", Big, ForeignKey("exchanges.id"), primary_key=True, autoincrement=False),
    Column("reader_version", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("abort_by", Text, comment="`client`, `upstream`, `recorder`"),
    Column("dialect", Text, comment="NULL: unread"),
    Column("model", Text),
    Column("kind", Text, nullable=False),
    Column("streamed", Integer, comment="0, 1, or NULL when unknown"),
    Column("stop", Text),
    Column("error", Text, comment="the provider's own words"),
    Column("prompt_tokens", Big, comment="all of the prompt, cached included"),
    Column("cached_tokens", Big, comment="NULL: not reported"),
    Column("cache_written_tokens", Big),
    Column("output_tokens", Big),
    Column("reasoning_tokens", Big),
    Column("usage_raw", Text, comment="the provider's usage as JSON"),
    Column("first_byte_ns", Big),
    Column("first_content_ns", Big, comment="TTFT ends here"),
    Column("first_output_ns", Big),
    Column("first_text_ns", Big),
    Column("last_content_ns", Big, comment="E2E ends here"),
    Column("content_reads", Integer, nullable=False),
    Column("response_id", Text),
    Column("previous_response_id", Text),
    Column(
        "request_decoded_sha256",
        LargeBinary(32),
        comment="of the body without its content-encoding; NULL: it has none, or one that does not decode",
    ),
    Column("response_decoded_sha256", LargeBinary(32), comment="as for the request"),
    Column("session_id", Big, ForeignKey("sessions.id")),
    Column("thread_id", Big, ForeignKey("threads.id")),
    Column("number", Integer, comment="place among the thread's calls of its kind, from 1"),
    Column("after", Text, comment="exchange ids with commas: what had to be complete before"),
    Column("gap_ns", Big, comment="from the latest end among `after` to the start"),
    Column("tool_ns", Big, comment="of the gap: tools at work, by the agent's own measure where it sends one; NULL: not known"),
    Column("human_ns", Big, comment="of the gap: until the user had said something"),
    Column("harness_ns", Big, comment="of the gap: the agent's own program (back-off, handing results over)"),
    Column("tools", Text, comment="JSON: [{call, name, ms, source}] of the tool calls answered here whose time is known"),
    Column("compaction_of", Big, comment="first turn after a compaction: the thread's last with the old history"),
    Column("compacted_by", Big, comment="the call that made the summary"),
    Column("retry_of", Big, ForeignKey("exchanges.id")),
    Column("source", Text, comment="the evidence chosen: `header`, `body`, `prefix`, ..."),
    Column("confidence", Float),
    Index(None, "session_id"),
    Index(None, "thread_id"),
    comment="What exchanges meant and where they belong. Derived: `playhead reread` makes it again.",
)

signal_values = Table(
    "signal_values",
    metadata,
    _id(),
    Column("name", Text, nullable=False),
    Column("value", Text, nullable=False),
    UniqueConstraint("name", "value"),
    comment="Each distinct thing on the wire that may say who sent something.",
)

signals = Table(
    "signals",
    metadata,
    Column("exchange_id", Big, ForeignKey("exchanges.id"), primary_key=True, autoincrement=False),
    Column("place", Integer, primary_key=True, autoincrement=False, comment="order within the exchange"),
    Column("signal_id", Big, ForeignKey("signal_values.id"), nullable=False),
    comment="Which exchange showed which signals. Derived.",
    sqlite_with_rowid=False,
)

trails = Table(
    "trails",
    metadata,
    Column("exchange_id", Big, ForeignKey("exchanges.id"), primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False, comment="zstd of MessagePack, the reader's own (`calls.reader_version`)"),
    comment="What the reader must remember of a placed call to recognise what goes on from it. Derived.",
)

recall = Table(
    "recall",
    metadata,
    Column("key", Big, primary_key=True, autoincrement=False, comment="of a prompt, an id, a text: equal keys may mean one session"),
    Column("session_id", Big, primary_key=True, autoincrement=False, comment="a session of which a call has it"),
    Index(None, "session_id"),
    comment="By what the reader finds the sessions that a new call may belong to, the reader's own. Derived.",
    sqlite_with_rowid=False,
)

media = Table(
    "media",
    metadata,
    _id(),
    Column("sha256", LargeBinary(32), nullable=False, unique=True, comment="of the decoded bytes"),
    Column("kind", Text, nullable=False, comment="`image`, `audio`, `file`"),
    Column("mime", Text, comment="as the client says"),
    Column("size", Big, nullable=False, comment="decoded bytes"),
    Column("width", Integer, comment="pixels, as the file's own head says; NULL: no image of a known form"),
    Column("height", Integer),
    comment="Each distinct image or file that stood in a request, however often. Derived.",
)

element_media = Table(
    "element_media",
    metadata,
    Column("element_id", Big, primary_key=True, autoincrement=False, comment="an element's id"),
    Column("place", Integer, primary_key=True, autoincrement=False, comment="order within the element"),
    Column("media_id", Big, ForeignKey("media.id"), nullable=False),
    Index(None, "media_id"),
    comment="Which elements hold which media. Derived.",
    sqlite_with_rowid=False,
)

decisions = Table(
    "decisions",
    metadata,
    _id(),
    Column("made_ns", Big, nullable=False, comment="Unix-epoch ns"),
    Column("kind", Text, nullable=False, comment="`merge`, `split`"),
    Column("session_key", Text, nullable=False, comment="of the session that is merged away, or split"),
    Column("into_key", Text, nullable=False, comment="of the session that takes it in, or of the new one"),
    Column("exchange_id", Big, comment="split: the first exchange of the new session"),
    comment="What the user says of sessions. Beats every signal; not derived, `reread` keeps it.",
)

ideal = Table(
    "ideal",
    metadata,
    Column("exchange_id", Big, ForeignKey("exchanges.id"), primary_key=True, autoincrement=False),
    Column("ledger_version", Integer, nullable=False),
    Column("prompt_tokens", Big, comment="of this call, in the ledger's scale"),
    Column("ideal_tokens", Big, comment="leading tokens shared with any earlier prompt (infinite cache)"),
    Column("broken_tokens", Big, comment="tokens of the thread's previous prompt that this one no longer shares"),
    comment="The reuse ledger's figures, kept so that listings need not count again. Derived.",
)

runs = Table(
    "runs",
    metadata,
    _id("`r2` on the command line is 2"),
    Column("started_ns", Big, nullable=False),
    Column("ended_ns", Big, comment="Unix-epoch ns; NULL: running, or broken off"),
    Column("target", Text, nullable=False),
    Column("settings", Text, nullable=False, comment="JSON"),
    Column("summary", Text, comment="JSON; NULL until it has ended"),
    comment="One replay each.",
)

replayed = Table(
    "replayed",
    metadata,
    Column("exchange_id", Big, ForeignKey("exchanges.id"), primary_key=True, autoincrement=False),
    Column("run_id", Big, ForeignKey("runs.id"), nullable=False),
    Column("source_exchange_id", Big, ForeignKey("exchanges.id"), nullable=False, comment="the recorded exchange it repeats"),
    Column("copy", Integer, nullable=False),
    Column("ready_ns", Big, nullable=False, comment="Unix-epoch ns at which it was due"),
    Index(None, "run_id"),
    comment="Binds replayed exchanges to their run.",
)
