"""The steps from an empty file to the present schema. Only `storage.database` starts them, and only when a trace is older."""
