"""All tables, the trace's secret and its compression dictionary."""

import os
from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DICTIONARY = Path(__file__).parent.parent / "dictionary.txt"
"""The turns of phrase of the wire formats, most frequent last. Copied into each trace: a better one only serves new traces."""


def upgrade() -> None:
    """Makes everything that the first version writes."""
    op.create_table(
        "elements",
        sa.Column("id", BIG, autoincrement=False, nullable=False),
        sa.Column("sha256", sa.LargeBinary(length=32), nullable=False),
        sa.Column("size", BIG, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_elements")),
        sa.UniqueConstraint("sha256", name=op.f("uq_elements_sha256")),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_meta")),
    )
    op.create_table(
        "origins",
        sa.Column("id", BIG, autoincrement=False, nullable=False),
        sa.Column("listener", sa.Text(), nullable=True),
        sa.Column("connection", sa.Text(), nullable=True),
        sa.Column("client_pid", sa.Integer(), nullable=True),
        sa.Column("client_command", sa.Text(), nullable=True),
        sa.Column("label", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_origins")),
    )
    op.create_table(
        "recorder_runs",
        sa.Column("id", BIG, autoincrement=False, nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("began", sa.Text(), nullable=False),
        sa.Column("started_ns", BIG, nullable=False),
        sa.Column("heartbeat_ns", BIG, nullable=False),
        sa.Column("closed_ns", BIG, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recorder_runs")),
    )
    op.create_table(
        "runs",
        sa.Column("id", BIG, autoincrement=False, nullable=False),
        sa.Column("started_ns", BIG, nullable=False),
        sa.Column("ended_ns", BIG, nullable=True),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_table(
        "sessions",
        sa.Column("id", BIG, autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("client", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("key", name=op.f("uq_sessions_key")),
    )
    op.create_table(
        "signal_values",
        sa.Column("id", BIG, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signal_values")),
        sa.UniqueConstraint("name", "value", name=op.f("uq_signal_values_name")),
    )
    op.create_table(
        "nodes",
        sa.Column("id", BIG, autoincrement=False, nullable=False),
        sa.Column("parent_id", BIG, nullable=False),
        sa.Column("element_id", BIG, nullable=False),
        sa.Column("grp", sa.Text(), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["element_id"], ["elements.id"], name=op.f("fk_nodes_element_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
        sa.UniqueConstraint("parent_id", "element_id", "grp", name=op.f("uq_nodes_parent_id")),
    )
    op.create_table(
        "bodies",
        sa.Column("id", BIG, autoincrement=False, nullable=False),
        sa.Column("sha256", sa.LargeBinary(length=32), nullable=False),
        sa.Column("size", BIG, nullable=False),
        sa.Column("leaf_id", BIG, nullable=True),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["leaf_id"], ["nodes.id"], name=op.f("fk_bodies_leaf_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bodies")),
        sa.UniqueConstraint("sha256", name=op.f("uq_bodies_sha256")),
    )
    op.create_table(
        "exchanges",
        sa.Column("id", BIG, autoincrement=False, nullable=False),
        sa.Column("started_ns", BIG, nullable=False),
        sa.Column("sent_ns", BIG, nullable=True),
        sa.Column("headers_ns", BIG, nullable=True),
        sa.Column("ended_ns", BIG, nullable=True),
        sa.Column("transport", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("failure_kind", sa.Text(), nullable=True),
        sa.Column("failure_message", sa.Text(), nullable=True),
        sa.Column("failed_ns", BIG, nullable=True),
        sa.Column("chunks", sa.Integer(), nullable=False),
        sa.Column("request_bytes", BIG, nullable=False),
        sa.Column("request_sha256", sa.LargeBinary(length=32), nullable=False),
        sa.Column("response_bytes", BIG, nullable=False),
        sa.Column("response_sha256", sa.LargeBinary(length=32), nullable=False),
        sa.Column("recorder_run_id", BIG, nullable=True),
        sa.Column("origin_id", BIG, nullable=False),
        sa.Column("request_body_id", BIG, nullable=True),
        sa.Column("request_decoded_body_id", BIG, nullable=True),
        sa.Column("response_body_id", BIG, nullable=True),
        sa.Column("request_headers", sa.LargeBinary(), nullable=False),
        sa.Column("response_headers", sa.LargeBinary(), nullable=True),
        sa.Column("arrivals", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["origin_id"], ["origins.id"], name=op.f("fk_exchanges_origin_id")),
        sa.ForeignKeyConstraint(["recorder_run_id"], ["recorder_runs.id"], name=op.f("fk_exchanges_recorder_run_id")),
        sa.ForeignKeyConstraint(["request_body_id"], ["bodies.id"], name=op.f("fk_exchanges_request_body_id")),
        sa.ForeignKeyConstraint(["request_decoded_body_id"], ["bodies.id"], name=op.f("fk_exchanges_request_decoded_body_id")),
        sa.ForeignKeyConstraint(["response_body_id"], ["bodies.id"], name=op.f("fk_exchanges_response_body_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exchanges")),
    )
    op.create_index(op.f("ix_exchanges_recorder_run_id"), "exchanges", ["recorder_run_id"], unique=False)
    op.create_index(op.f("ix_exchanges_started_ns"), "exchanges", ["started_ns"], unique=False)
    op.create_table(
        "trails",
        sa.Column("exchange_id", BIG, autoincrement=False, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["exchange_id"], ["exchanges.id"], name=op.f("fk_trails_exchange_id")),
        sa.PrimaryKeyConstraint("exchange_id", name=op.f("pk_trails")),
    )
    op.create_table(
        "ideal",
        sa.Column("exchange_id", BIG, autoincrement=False, nullable=False),
        sa.Column("ledger_version", sa.Integer(), nullable=False),
        sa.Column("prompt_tokens", BIG, nullable=True),
        sa.Column("ideal_tokens", BIG, nullable=True),
        sa.Column("broken_tokens", BIG, nullable=True),
        sa.ForeignKeyConstraint(["exchange_id"], ["exchanges.id"], name=op.f("fk_ideal_exchange_id")),
        sa.PrimaryKeyConstraint("exchange_id", name=op.f("pk_ideal")),
    )
    op.create_table(
        "journal",
        sa.Column("id", BIG, autoincrement=False, nullable=False),
        sa.Column("exchange_id", BIG, nullable=False),
        sa.Column("side", sa.Text(), nullable=False),
        sa.Column("chunks", sa.LargeBinary(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["exchange_id"], ["exchanges.id"], name=op.f("fk_journal_exchange_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_journal")),
    )
    op.create_index(op.f("ix_journal_exchange_id"), "journal", ["exchange_id"], unique=False)
    op.create_table(
        "replayed",
        sa.Column("exchange_id", BIG, autoincrement=False, nullable=False),
        sa.Column("run_id", BIG, nullable=False),
        sa.Column("source_exchange_id", BIG, nullable=False),
        sa.Column("copy", sa.Integer(), nullable=False),
        sa.Column("ready_ns", BIG, nullable=False),
        sa.ForeignKeyConstraint(["exchange_id"], ["exchanges.id"], name=op.f("fk_replayed_exchange_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_replayed_run_id")),
        sa.ForeignKeyConstraint(["source_exchange_id"], ["exchanges.id"], name=op.f("fk_replayed_source_exchange_id")),
        sa.PrimaryKeyConstraint("exchange_id", name=op.f("pk_replayed")),
    )
    op.create_index(op.f("ix_replayed_run_id"), "replayed", ["run_id"], unique=False)
    op.create_table(
        "signals",
        sa.Column("exchange_id", BIG, autoincrement=False, nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("signal_id", BIG, nullable=False),
        sa.ForeignKeyConstraint(["exchange_id"], ["exchanges.id"], name=op.f("fk_signals_exchange_id")),
        sa.ForeignKeyConstraint(["signal_id"], ["signal_values.id"], name=op.f("fk_signals_signal_id")),
        sa.PrimaryKeyConstraint("exchange_id", "place", name=op.f("pk_signals")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "threads",
        sa.Column("id", BIG, autoincrement=False, nullable=False),
        sa.Column("session_id", BIG, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=True),
        sa.Column("parent_thread_id", BIG, nullable=True),
        sa.Column("parent_exchange_id", BIG, nullable=True),
        sa.ForeignKeyConstraint(["parent_exchange_id"], ["exchanges.id"], name=op.f("fk_threads_parent_exchange_id")),
        sa.ForeignKeyConstraint(["parent_thread_id"], ["threads.id"], name=op.f("fk_threads_parent_thread_id")),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_threads_session_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_threads")),
        sa.UniqueConstraint("session_id", "key", name=op.f("uq_threads_session_id")),
    )
    op.create_table(
        "calls",
        sa.Column("exchange_id", BIG, autoincrement=False, nullable=False),
        sa.Column("reader_version", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("abort_by", sa.Text(), nullable=True),
        sa.Column("dialect", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("streamed", sa.Integer(), nullable=True),
        sa.Column("stop", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("prompt_tokens", BIG, nullable=True),
        sa.Column("cached_tokens", BIG, nullable=True),
        sa.Column("cache_written_tokens", BIG, nullable=True),
        sa.Column("output_tokens", BIG, nullable=True),
        sa.Column("reasoning_tokens", BIG, nullable=True),
        sa.Column("usage_raw", sa.Text(), nullable=True),
        sa.Column("first_byte_ns", BIG, nullable=True),
        sa.Column("first_content_ns", BIG, nullable=True),
        sa.Column("first_output_ns", BIG, nullable=True),
        sa.Column("first_text_ns", BIG, nullable=True),
        sa.Column("last_content_ns", BIG, nullable=True),
        sa.Column("content_reads", sa.Integer(), nullable=False),
        sa.Column("response_id", sa.Text(), nullable=True),
        sa.Column("previous_response_id", sa.Text(), nullable=True),
        sa.Column("session_id", BIG, nullable=True),
        sa.Column("thread_id", BIG, nullable=True),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("after", sa.Text(), nullable=True),
        sa.Column("gap_ns", BIG, nullable=True),
        sa.Column("retry_of", BIG, nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("confidence", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["exchange_id"], ["exchanges.id"], name=op.f("fk_calls_exchange_id")),
        sa.ForeignKeyConstraint(["retry_of"], ["exchanges.id"], name=op.f("fk_calls_retry_of")),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_calls_session_id")),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"], name=op.f("fk_calls_thread_id")),
        sa.PrimaryKeyConstraint("exchange_id", name=op.f("pk_calls")),
    )
    op.create_index(op.f("ix_calls_session_id"), "calls", ["session_id"], unique=False)
    op.create_index(op.f("ix_calls_thread_id"), "calls", ["thread_id"], unique=False)
    meta = sa.table("meta", sa.column("key", sa.Text), sa.column("content", sa.LargeBinary))
    op.bulk_insert(meta, [{"key": "secret", "content": os.urandom(32)}, {"key": "dictionary", "content": DICTIONARY.read_bytes()}])
