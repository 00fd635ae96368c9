"""Preparation of a commit: from the current head and a change to the next head and its record."""
