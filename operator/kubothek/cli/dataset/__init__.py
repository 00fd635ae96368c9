"""Commands that change one dataset: its rows, its columns, its name."""
