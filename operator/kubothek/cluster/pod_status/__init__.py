"""The outcome of an attempt, from the status of its pod: pure functions."""
