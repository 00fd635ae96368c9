"""Pruning by skipping metadata: which files a query needs, and what skipping saved."""
