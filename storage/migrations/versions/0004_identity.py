"""Forks, tool calls behind sub-agents, parts of gaps, compactions, media; what the user decides of sessions."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from storage.views import VIEWS

revision = "0004"
down_revision = "0002"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
COLUMNS: dict[str, dict[str, Any]] = {
    "sessions": {"forked_from_id": BIG, "note": sa.Text()},
    "threads": {"parent_call": sa.Text(), "mode": sa.Text(), "joined_exchange_id": BIG},
    "calls": {
        "tool_ns": BIG, "human_ns": BIG, "harness_ns": BIG, "tools": sa.Text(), "compaction_of": BIG, "compacted_by": BIG,
    },
}  # fmt: skip


def upgrade() -> None:
    """Adds columns and tables; views are made anew."""
    for view in VIEWS:
        op.execute(f"DROP VIEW IF EXISTS {view.name}")
    for table, columns in COLUMNS.items():
        for name, kind in columns.items():
            op.add_column(table, sa.Column(name, kind, nullable=True))
    _media()
    op.create_table(
        "decisions",
        sa.Column("id", BIG, autoincrement=False, nullable=False),
        sa.Column("made_ns", BIG, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("session_key", sa.Text(), nullable=False),
        sa.Column("into_key", sa.Text(), nullable=False),
        sa.Column("exchange_id", BIG, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decisions")),
    )
    for view in VIEWS:
        op.execute(f"CREATE VIEW {view.name} AS {view.select.strip()}")


def _media() -> None:
    op.create_table(
        "media",
        sa.Column("id", BIG, autoincrement=False, nullable=False),
        sa.Column("sha256", sa.LargeBinary(length=32), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("mime", sa.Text(), nullable=True),
        sa.Column("size", BIG, nullable=False),
        sa.Column("width", sa.Integer(), nullable=True),
        sa.Column("height", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_media")),
        sa.UniqueConstraint("sha256", name=op.f("uq_media_sha256")),
    )
    op.create_table(
        "element_media",
        sa.Column("element_id", BIG, autoincrement=False, nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("media_id", BIG, nullable=False),
        sa.ForeignKeyConstraint(["media_id"], ["media.id"], name=op.f("fk_element_media_media_id")),
        sa.PrimaryKeyConstraint("element_id", "place", name=op.f("pk_element_media")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_element_media_media_id"), "element_media", ["media_id"], unique=False)
