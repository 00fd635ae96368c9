"""The session of the tests of Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """The one that all tests share; a file that needs other settings has a fixture of its own."""
    return spark
