"""Spark: the session of a job, and the distributed write."""

from __future__ import annotations

from kubothek.spark.errors import install

install()
