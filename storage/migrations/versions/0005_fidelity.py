"""What proves and qualifies a record: hashes of decoded bodies, the recorder's own time and stalls, how many exchanges a recorder lost."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
COLUMNS: dict[str, dict[str, Any]] = {
    "recorder_runs": {"lost": sa.Integer()},
    "exchanges": {"own_ns": BIG, "stall_ns": BIG},
    "calls": {"request_decoded_sha256": sa.LargeBinary(32), "response_decoded_sha256": sa.LargeBinary(32)},
}


def upgrade() -> None:
    """Adds the columns; what was recorded before has none of these figures."""
    for table, columns in COLUMNS.items():
        for name, kind in columns.items():
            op.add_column(table, sa.Column(name, kind, nullable=True))
