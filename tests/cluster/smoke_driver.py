"""What the driver pod of test_cluster.py runs: Spark with one executor on the cluster, reading and writing S3.

usage: smoke_driver.py LOCATION   (an s3a:// directory); prints one JSON line with what it saw
"""

import json
import os
import socket
import sys
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

ROWS = 100_000


def session() -> SparkSession:
    """A session in client mode whose executors belong to this pod."""
    environment = os.environ
    settings = {
        "spark.master": "k8s://https://" + environment["KUBERNETES_SERVICE_HOST"],
        "spark.submit.deployMode": "client",
        "spark.app.id": environment["POD_NAME"],
        "spark.kubernetes.namespace": environment["POD_NAMESPACE"],
        "spark.kubernetes.driver.pod.name": environment["POD_NAME"],
        "spark.driver.host": environment["POD_IP"],
        "spark.driver.bindAddress": environment["POD_IP"],
        "spark.driver.port": "7078",
        "spark.driver.blockManager.port": "7079",
        "spark.blockManager.port": "7079",
        "spark.driver.memory": "512m",
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
        "spark.executor.memoryOverheadFactor": "0.4",
        "spark.kubernetes.executor.request.cores": "100m",
        "spark.kubernetes.executor.podNamePrefix": environment["POD_NAME"],
        "spark.kubernetes.executor.podTemplateFile": "/etc/smoke/executor.yaml",
        "spark.kubernetes.container.image": environment["IMAGE"],
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        # Spark mounts a volume of its own there into the executors: it must not be a path of their pod template.
        "spark.local.dir": "/var/spark",
        "spark.hadoop.fs.s3a.endpoint": environment["S3_ENDPOINT"],
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": environment["S3_ACCESS_KEY"],
        "spark.hadoop.fs.s3a.secret.key": environment["S3_SECRET_KEY"],
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def squares(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs on the executor: each id with its square, and where that was computed."""
    for batch in batches:
        ids = batch.column("id")
        host = pa.array([socket.gethostname()] * len(ids))
        yield pa.RecordBatch.from_arrays([ids, pc.multiply(ids, ids), host], names=["id", "square", "host"])


def main(location: str) -> None:
    spark = session()
    spark.range(ROWS).repartition(2).mapInArrow(squares, "id long, square long, host string").write.parquet(location)
    written = spark.read.parquet(location)
    last = written.where(f"id = {ROWS - 1}").first()
    assert last is not None
    print(json.dumps({"rows": written.count(), "square": last["square"], "host": last["host"]}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
