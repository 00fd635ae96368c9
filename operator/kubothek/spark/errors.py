"""Errors of Spark itself. Errors of data and stores keep their own types when Spark carries them."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

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


# An explicit error for imports of PySpark when it is not installed.


_MODULES: Final = ("pyspark", "py4j")


class SparkNotInstalled(SparkUnavailable, ModuleNotFoundError):
    """PySpark is not installed. Libraries to which it is optional handle this as a normal import error."""

    reason = "SparkUnavailable"


class _Absent(MetaPathFinder):
    """Last finder, which raises for modules of PySpark that no other finder found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in _MODULES:
            raise SparkNotInstalled(
                f"this work needs Spark, and {name} is not installed: pip install 'kubothek[spark]', or set the "
                "Engine's sparkFrom above the size of the source, which is then written without Spark"
            )
        return None


def install() -> None:
    """Make imports of PySpark raise SparkNotInstalled if it is not installed."""
    if not any(isinstance(finder, _Absent) for finder in sys.meta_path):
        sys.meta_path.append(_Absent())
