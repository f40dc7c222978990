"""The views, the part of the schema that is API."""

from alembic import op

from storage.views import VIEWS

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Makes the views as they are now: a later step that changes one drops and makes it again."""
    for view in VIEWS:
        op.execute(f"DROP VIEW IF EXISTS {view.name}")
        op.execute(f"CREATE VIEW {view.name} AS {view.select.strip()}")
