"""Scans: which files a filter leaves, and their rows as Arrow batches."""
