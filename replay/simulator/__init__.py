"""A model server that knows what it does: four dialects, a real prefix cache, known timing, and a log of the truth.

`cache` and `timing` are pure; `dialects` read requests and write answers; `script` decides what is said; `server` is the only part with
sockets. It does not know traces, the recorder or the ledger: what it shares with them is how tokens are counted (`tracer.tokens`).
"""
