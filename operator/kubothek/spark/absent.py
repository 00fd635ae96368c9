"""An explicit error for imports of PySpark when it is not installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

from kubothek.spark.errors import SparkUnavailable

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
