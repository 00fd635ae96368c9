"""Errors of Spark itself. Errors of data and stores keep their own types when Spark carries them."""

from __future__ import annotations

import re

from kubothek.errors import LakeError


class SparkFailed(LakeError):
    """Spark gave up: executors were lost too often, or the JVM ended. A retry may succeed."""

    transient = True


class SparkUnavailable(LakeError):
    """Spark does not start: PySpark or Java is not installed, or Spark refuses the settings."""


class ExecutorsUnavailable(LakeError):
    """Spark has work and no executor. A retry may find resources for executors."""

    transient = True


def last_words(error: BaseException) -> str:
    """Return the most useful line of a Spark error: its last Python error, or else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)\b", line)]
    said = python or lines or [type(error).__name__]
    return (said[-1] if python else said[0])[:500]
