"""A named error where PySpark is not installed, at whichever of its modules is imported first."""

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
    """PySpark is not installed. Libraries that can do without it take this for the usual error of an import."""

    reason = "SparkUnavailable"


class _Absent(MetaPathFinder):
    """Finds what no other finder found, to say what it is for."""

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
    """Have imports of PySpark end in SparkNotInstalled if there is none."""
    if not any(isinstance(finder, _Absent) for finder in sys.meta_path):
        sys.meta_path.append(_Absent())
