"""The engines, which pip and Maven install at pinned versions into the cache: they and the tests need other versions of
the same packages.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.testcluster.cache import build_once, content_key
from tests.testcluster.paths import cache_root
from tests.testcluster.steps import run, step

DUCKDB = tuple(
    f"{name}==1.5.5" for name in ("duckdb", *(f"duckdb-extension-{x}" for x in ("avro", "httpfs", "iceberg")))
)
POLARS = ("polars==2.1.0", "polars-runtime-32==2.1.0", "polars-iceberg==0.1.0")
# Iceberg-rust, and the only major version of DataFusion whose tables it provides.
RUST = ("pyiceberg-core==0.11.0", "datafusion==54.1.0")
# The runtimes of Iceberg up to 1.12 are for Spark 4.1 and older. In the PySpark 4.3 of the tests they fail with
# IncompatibleClassChangeError: there, CatalogManager is an interface and View a class.
SPARK = ("pyspark==4.1.4",)
SPARK_JARS = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.12.0",
)


def installed(packages: tuple[str, ...]) -> Path:
    """Return a directory with these packages and no others, for the front of ``sys.path``."""
    target = cache_root() / "tools" / f"{packages[0].replace('==', '-')}-{content_key(sys.version, *packages)}"

    def fill(directory: Path) -> None:
        with step(f"pip install {' '.join(packages)}"):
            run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", directory, *packages])

    return build_once(target, fill)


def ivy() -> Path:
    """Return the directory where Spark keeps the jars that it fetches from Maven."""
    return cache_root() / "ivy"
