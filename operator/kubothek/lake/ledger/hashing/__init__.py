"""The logical hash of rows, by whole columns."""
