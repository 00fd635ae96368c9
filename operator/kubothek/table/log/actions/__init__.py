"""Commits of their own kind: each a change that no rows are written for."""
