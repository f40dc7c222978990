"""The views of a trace: the part of its schema that is API for `sqlite3`, datasette and the like. Plain SQL, no derived state."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """`columns`: (name, what it says), in order."""

    name: str
    says: str
    columns: tuple[tuple[str, str], ...]
    select: str


_OVERVIEW = View(
    "session_overview",
    "One row a session, in order of its start.",
    (
        ("session", "id, as in `calls.session_id`"),
        ("name", "given by the user"),
        ("client", "the agent's name"),
        ("started_ns", "Unix-epoch ns of its first request"),
        ("duration_s", "to the last end"),
        ("threads", "agents and sub-agents"),
        ("turns", "calls of kind `turn`"),
        ("side_calls", "all other calls"),
        ("prompt_tokens", "sum over calls whose figure is known"),
        ("cached_tokens", "as reported; NULL: by none"),
        ("output_tokens", "sum over calls whose figure is known"),
        ("ideal_share", "ideal over prompt tokens by the ledger; NULL: not counted yet"),
    ),
    """
    SELECT s.id AS session, s.name AS name, s.client AS client,
           MIN(e.started_ns) AS started_ns,
           (MAX(e.started_ns + COALESCE(e.ended_ns, 0)) - MIN(e.started_ns)) / 1e9 AS duration_s,
           COUNT(DISTINCT c.thread_id) AS threads,
           SUM(CASE WHEN c.kind = 'turn' THEN 1 ELSE 0 END) AS turns,
           SUM(CASE WHEN c.kind = 'turn' THEN 0 ELSE 1 END) AS side_calls,
           SUM(c.prompt_tokens) AS prompt_tokens, SUM(c.cached_tokens) AS cached_tokens, SUM(c.output_tokens) AS output_tokens,
           SUM(CASE WHEN i.prompt_tokens IS NOT NULL THEN i.ideal_tokens END) * 1.0
             / NULLIF(SUM(CASE WHEN i.ideal_tokens IS NOT NULL THEN i.prompt_tokens END), 0) AS ideal_share
    FROM sessions AS s JOIN calls AS c ON c.session_id = s.id JOIN exchanges AS e ON e.id = c.exchange_id
    LEFT JOIN ideal AS i ON i.exchange_id = c.exchange_id
    GROUP BY s.id, s.name, s.client
    ORDER BY started_ns, session
    """,
)

_LATENCY = View(
    "turn_latency",
    "One row a call, recorded or replayed (in the place of what it repeats). Figures are NULL unless complete with a status below 400.",
    (
        ("exchange", "id"),
        ("run", "NULL: recorded"),
        ("session", "id"),
        ("thread", "id"),
        ("number", "place among the thread's calls of its kind"),
        ("kind", "`turn`, `title`, ..."),
        ("dialect", ""),
        ("model", ""),
        ("state", ""),
        ("status", ""),
        ("lag_ms", "start minus ready; replays only"),
        ("ttfb_ms", "first body byte"),
        ("ttft_ms", "first generated content in any channel"),
        ("ttfo_ms", "first generated content that is not reasoning"),
        ("e2e_ms", "last generated content"),
        ("close_ms", "stream closed"),
        ("itl_ms", "(last - first content) / (output tokens - 1); NULL when not streamed or fewer than 2 tokens"),
        ("output_tokens", "from the server's usage"),
    ),
    """
    SELECT e.id AS exchange, r.run_id AS run, COALESCE(p.session_id, c.session_id) AS session,
           COALESCE(p.thread_id, c.thread_id) AS thread, COALESCE(p.number, c.number) AS number, COALESCE(p.kind, c.kind) AS kind,
           c.dialect AS dialect, c.model AS model, c.state AS state, e.status AS status,
           (e.started_ns - r.ready_ns) / 1e6 AS lag_ms,
           CASE WHEN c.state = 'complete' AND e.status < 400 THEN c.first_byte_ns / 1e6 END AS ttfb_ms,
           CASE WHEN c.state = 'complete' AND e.status < 400 THEN c.first_content_ns / 1e6 END AS ttft_ms,
           CASE WHEN c.state = 'complete' AND e.status < 400 THEN c.first_output_ns / 1e6 END AS ttfo_ms,
           CASE WHEN c.state = 'complete' AND e.status < 400 THEN c.last_content_ns / 1e6 END AS e2e_ms,
           CASE WHEN c.state = 'complete' AND e.status < 400 THEN e.ended_ns / 1e6 END AS close_ms,
           CASE WHEN c.state = 'complete' AND e.status < 400 AND c.streamed = 1 AND c.output_tokens > 1
                THEN (c.last_content_ns - c.first_content_ns) / 1e6 / (c.output_tokens - 1) END AS itl_ms,
           c.output_tokens AS output_tokens
    FROM calls AS c JOIN exchanges AS e ON e.id = c.exchange_id LEFT JOIN replayed AS r ON r.exchange_id = e.id
    LEFT JOIN calls AS p ON p.exchange_id = r.source_exchange_id
    WHERE c.dialect IS NOT NULL
    ORDER BY e.started_ns, exchange
    """,
)

_REUSE = View(
    "prefix_reuse",
    "One row a call: how much of its prompt was, and could have been, reused.",
    (
        ("exchange", "id"),
        ("run", "NULL: recorded"),
        ("session", "id"),
        ("thread", "id"),
        ("number", "place among the thread's calls of its kind"),
        ("model", ""),
        ("elements", "tools, system blocks and messages of the prompt; NULL: the body was kept whole"),
        ("prompt_tokens", "as reported, cached included"),
        ("cached_tokens", "as reported; NULL: not reported"),
        ("ledger_prompt_tokens", "as the ledger counts"),
        ("ideal_tokens", "an infinite cache would have reused, as the ledger counts"),
        ("broken_tokens", "of the thread's previous prompt, no longer shared, as the ledger counts"),
    ),
    """
    SELECT e.id AS exchange, r.run_id AS run, COALESCE(p.session_id, c.session_id) AS session,
           COALESCE(p.thread_id, c.thread_id) AS thread, COALESCE(p.number, c.number) AS number, c.model AS model,
           n.depth AS elements, c.prompt_tokens AS prompt_tokens, c.cached_tokens AS cached_tokens,
           i.prompt_tokens AS ledger_prompt_tokens, i.ideal_tokens AS ideal_tokens, i.broken_tokens AS broken_tokens
    FROM calls AS c JOIN exchanges AS e ON e.id = c.exchange_id
    LEFT JOIN bodies AS b ON b.id = COALESCE(e.request_decoded_body_id, e.request_body_id)
    LEFT JOIN nodes AS n ON n.id = b.leaf_id
    LEFT JOIN ideal AS i ON i.exchange_id = e.id LEFT JOIN replayed AS r ON r.exchange_id = e.id
    LEFT JOIN calls AS p ON p.exchange_id = r.source_exchange_id
    WHERE c.dialect IS NOT NULL
    ORDER BY e.started_ns, exchange
    """,
)

_SIGNAL = View(
    "session_signal",
    "One row a signal: everything on the wire that may say who sent a call, beside what was chosen for it.",
    (
        ("exchange", "id"),
        ("name", "`where:name`; where: `header`, `body`, `metadata`, `system`, `origin`"),
        ("value", "as found"),
        ("session", "id of the session chosen"),
        ("thread", "id of the thread chosen"),
        ("source", "the evidence chosen"),
        ("confidence", "from 0 to 1"),
    ),
    """
    SELECT s.exchange_id AS exchange, v.name AS name, v.value AS value, c.session_id AS session, c.thread_id AS thread,
           c.source AS source, c.confidence AS confidence
    FROM signals AS s JOIN signal_values AS v ON v.id = s.signal_id LEFT JOIN calls AS c ON c.exchange_id = s.exchange_id
    ORDER BY s.exchange_id, s.place
    """,
)

_COMPACTION = View(
    "compaction",
    "One row a compaction: a thread's history was replaced by a summary.",
    (
        ("exchange", "the first turn with the new history"),
        ("session", "id"),
        ("thread", "id"),
        ("before", "the last turn with the old history"),
        ("made_by", "the call that made the summary"),
        ("tokens_before", "prompt of the last turn with the old history, as reported"),
        ("tokens_after", "prompt of the first turn with the new one, as reported"),
        ("elements_before", "tools, system blocks and messages of the old prompt; NULL: not whole in the trace"),
        ("elements_after", "of the new prompt"),
        ("elements_kept", "leading ones that are the same in both: the prefix that survived"),
    ),
    """
    WITH RECURSIVE
    pair AS (
      SELECT c.exchange_id AS exchange, c.session_id AS session, c.thread_id AS thread, c.compaction_of AS before,
             c.compacted_by AS made_by, c.prompt_tokens AS tokens_after, p.prompt_tokens AS tokens_before,
             CASE WHEN c.previous_response_id IS NULL THEN new_body.leaf_id END AS new_leaf,
             CASE WHEN p.previous_response_id IS NULL THEN old_body.leaf_id END AS old_leaf
      FROM calls AS c JOIN exchanges AS e ON e.id = c.exchange_id
      LEFT JOIN calls AS p ON p.exchange_id = c.compaction_of LEFT JOIN exchanges AS o ON o.id = c.compaction_of
      LEFT JOIN bodies AS new_body ON new_body.id = COALESCE(e.request_decoded_body_id, e.request_body_id)
      LEFT JOIN bodies AS old_body ON old_body.id = COALESCE(o.request_decoded_body_id, o.request_body_id)
      WHERE c.compaction_of IS NOT NULL
    ),
    old_path AS (
      SELECT exchange, old_leaf AS node FROM pair WHERE old_leaf IS NOT NULL
      UNION ALL SELECT w.exchange, n.parent_id FROM old_path AS w JOIN nodes AS n ON n.id = w.node WHERE n.parent_id > 0
    ),
    new_path AS (
      SELECT exchange, new_leaf AS node FROM pair WHERE new_leaf IS NOT NULL
      UNION ALL SELECT w.exchange, n.parent_id FROM new_path AS w JOIN nodes AS n ON n.id = w.node WHERE n.parent_id > 0
    ),
    kept AS (
      SELECT a.exchange AS exchange, COUNT(*) AS elements
      FROM old_path AS a JOIN new_path AS b ON b.exchange = a.exchange AND b.node = a.node GROUP BY a.exchange
    )
    SELECT pair.exchange AS exchange, pair.session AS session, pair.thread AS thread, pair.before AS before, pair.made_by AS made_by,
           pair.tokens_before AS tokens_before, pair.tokens_after AS tokens_after,
           old_node.depth AS elements_before, new_node.depth AS elements_after,
           CASE WHEN old_node.depth IS NOT NULL AND new_node.depth IS NOT NULL THEN COALESCE(kept.elements, 0) END AS elements_kept
    FROM pair LEFT JOIN nodes AS old_node ON old_node.id = pair.old_leaf LEFT JOIN nodes AS new_node ON new_node.id = pair.new_leaf
    LEFT JOIN kept ON kept.exchange = pair.exchange
    ORDER BY pair.exchange
    """,
)

VIEWS = (_OVERVIEW, _LATENCY, _REUSE, _SIGNAL, _COMPACTION)
