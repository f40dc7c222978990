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

VIEWS = (_OVERVIEW, _LATENCY, _REUSE)
