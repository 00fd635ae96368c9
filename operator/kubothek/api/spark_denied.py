"""Settings of Spark that no manifest may have: those that fields, the operator or the pod set."""

from __future__ import annotations

from typing import Final

DENIED_CONF: Final = (
    # the operator decides where Spark runs
    "spark.app.",
    "spark.master",
    "spark.submit.",
    "spark.kubernetes.",
    "spark.driver.host",
    "spark.driver.port",
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.blockManager.port",
    "spark.authenticate",
    "spark.network.crypto.",
    "spark.network.sasl.",
    "spark.ssl.",
    "spark.api.mode",
    "spark.connect.",
    "spark.local.connect",
    "spark.remote",
    "spark.driver.log.",
    "spark.metrics.conf",
    "spark.local.dir",
    "spark.kubothek.",
    # sizes and lifetime of executors have fields of their own
    "spark.driver.cores",
    "spark.driver.memory",
    "spark.dynamicAllocation.",
    "spark.executor.cores",
    "spark.executor.decommission.",
    "spark.executor.failuresValidityInterval",
    "spark.executor.instances",
    "spark.executor.maxNumFailures",
    "spark.executor.memory",
    "spark.decommission.",
    "spark.shuffle.sort.io.plugin.class",
    "spark.storage.decommission.",
    # the event log has a field of its own; the job writes it to the store
    "spark.eventLog.",
    # everything that loads or runs code, or sets the environment of processes
    "spark.archives",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extra",
    "spark.driver.resource.",  # discoveryScript
    "spark.driver.userClassPathFirst",
    "spark.executor.defaultJavaOptions",
    "spark.executor.extra",
    "spark.executor.resource.",
    "spark.executor.userClassPathFirst",
    "spark.executorEnv.",
    "spark.extraListeners",
    "spark.files",
    "spark.jars",
    "spark.plugins",
    "spark.pyspark.",
    "spark.python.",
    "spark.r.",
    "spark.repl.",
    "spark.resources.",  # discoveryPlugin
    "spark.ui.filters",
    "spark.sql.artifact.",
    "spark.sql.catalog",
    "spark.sql.execution.pyspark.",
    "spark.sql.extensions",
    "spark.sql.hive.",
    "spark.sql.queryExecutionListeners",
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.warehouse.dir",
    # jobs read and write through the ObjectStore's own credentials
    "spark.hadoop.",
)
"""Prefixes of Spark's settings that ``sparkConf`` must not have: authors of manifests do not administer the cluster."""
