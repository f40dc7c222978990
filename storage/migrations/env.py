"""Alembic's entry: runs the steps on the connection it is given, inside that connection's transaction."""

from alembic import context

from storage.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
context.run_migrations()
