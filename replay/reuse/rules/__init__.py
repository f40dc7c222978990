"""What a server's own rules allow of a prefix, one module an engine, named in `ledger.RULES`. Pure; siblings do not know each other."""
