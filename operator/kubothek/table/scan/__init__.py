"""Scans: which files a filter selects, and their rows as Arrow batches."""
