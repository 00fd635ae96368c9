"""Where Spark finds ``format("kubothek")``: it looks for a ``DefaultSource`` in top-level modules ``pyspark_*``."""

from __future__ import annotations

from kubothek.spark.datasource import KubothekSource as DefaultSource

__all__ = ["DefaultSource"]
