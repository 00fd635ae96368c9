"""Commits that write no rows: deletion, restoration and conversion."""
