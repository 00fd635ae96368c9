"""Errors of the local runtime itself, not of its jobs; each message says what to do."""


class LocalError(Exception):
    """Base of the errors that the local runtime raises on purpose."""
