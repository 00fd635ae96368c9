"""The Python door."""
