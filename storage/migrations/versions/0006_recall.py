"""Keys by which the reader finds the sessions that new exchanges may belong to, without loading all."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Adds the table."""
    op.create_table(
        "recall",
        sa.Column("key", BIG, autoincrement=False, nullable=False),
        sa.Column("session_id", BIG, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("key", "session_id", name=op.f("pk_recall")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_recall_session_id"), "recall", ["session_id"], unique=False)
