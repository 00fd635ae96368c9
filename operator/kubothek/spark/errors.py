"""What can go wrong with Spark itself. What goes wrong with data or stores keeps its own type on its way here."""

from __future__ import annotations

import re

from kubothek.errors import LakeError


class SparkFailed(LakeError):
    """Spark gave up: executors were lost too often, or the JVM ended. Another try may have more luck."""

    transient = True


class SparkUnavailable(LakeError):
    """Spark does not start here: PySpark or Java is not installed, or Spark refuses the settings."""


class ExecutorsUnavailable(LakeError):
    """Spark has work and no executor. The next attempt may find room for some."""

    transient = True


def last_words(error: BaseException) -> str:
    """The line of a Spark error that says most: the last Python error in it, or the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)\b", line)]
    said = python or lines or [type(error).__name__]
    return (said[-1] if python else said[0])[:500]
