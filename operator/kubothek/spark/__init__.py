"""Spark: the session of a job, the distributed write, and :func:`kubothek.spark.merge` for PySpark programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubothek.spark.errors import install

if TYPE_CHECKING:
    from kubothek.spark.merging import merge

__all__ = ["merge"]

install()


def __getattr__(name: str) -> Any:
    if name == "merge":  # it imports PySpark
        from kubothek.spark.merging import merge

        return merge
    raise AttributeError(f"module 'kubothek.spark' has no attribute {name!r}")
