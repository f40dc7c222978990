"""The reuse ledger: of every prompt's tokens, what any prefix cache could reuse, what rules allow, what the server said.

Pure but for `prompts`, which asks the store what was sent. Definitions: docs/reference/reuse.md.
"""
