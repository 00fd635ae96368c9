"""Standing tasks of a Dataset, which it starts by itself, one at a time."""
