"""What can go wrong around the jobs of the local runtime; each message says what to do."""


class LocalError(Exception):
    """Base of the errors that the local runtime raises on purpose."""
