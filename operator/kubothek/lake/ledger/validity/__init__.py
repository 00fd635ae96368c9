"""Which block may follow which chain, and what a chain amounts to: pure functions."""
