from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError

from kubothek.spark.errors import SparkUnavailable, last_words
from kubothek.spark.session import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POD = {
    "POD_NAME": "flights-1",
    "POD_NAMESPACE": "team-a",
    "POD_IP": "10.1.2.3",
    "KUBOTHEK_IMAGE": "image:1",
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
    "KUBOTHEK_EXECUTOR_TEMPLATE": "/etc/kubothek/executor.json",
    "KUBOTHEK_SCRATCH": "/var/spark",
}


def test_session_in_pod_requests_executors_from_cluster() -> None:
    conf = settings({"spark.executor.instances": "3"}, POD)
    assert {key: conf[key] for key in conf if "kubernetes" in key or "driver.host" in key or "bind" in key.lower()} == {
        "spark.driver.host": "10.1.2.3",
        "spark.driver.bindAddress": "10.1.2.3",
        "spark.kubernetes.container.image": "image:1",
        "spark.kubernetes.driver.pod.name": "flights-1",
        "spark.kubernetes.executor.podTemplateFile": "/etc/kubothek/executor.json",
        "spark.kubernetes.namespace": "team-a",
    }
    assert conf["spark.master"] == "k8s://https://10.96.0.1:443"
    assert conf["spark.submit.deployMode"] == "client"
    assert conf["spark.local.dir"] == "/var/spark"
    assert conf["spark.executor.instances"] == "3"


def test_session_driver_host_with_ipv6_address_is_bracketed() -> None:
    assert settings({}, {**POD, "POD_IP": "fd00::7"})["spark.driver.host"] == "[fd00::7]"


def test_session_with_named_master_stays_local_and_needs_no_pod() -> None:
    conf = settings({"spark.master": "local-cluster[2,1,1024]"}, POD)
    assert conf["spark.master"] == "local-cluster[2,1,1024]"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert not [key for key in conf if "kubernetes" in key]


@pytest.mark.parametrize(
    ("master", "with_retries"),
    [("local", "local[1,4]"), ("local[2]", "local[2,4]"), ("local[*]", "local[*,4]"), ("local[2,1]", "local[2,1]")],
)
def test_session_with_local_master_retries_tasks(master: str, with_retries: str) -> None:
    assert settings({"spark.master": master}, {})["spark.master"] == with_retries


def test_session_without_master_outside_pod_is_refused() -> None:
    with pytest.raises(SparkUnavailable, match=r"no spark\.master, and this is no driver pod: POD_IP is not set"):
        settings({}, {key: value for key, value in POD.items() if key != "POD_IP"})


def test_session_settings_of_job_cannot_override_write_requirements() -> None:
    tuning = {"spark.log.level": "INFO", "spark.task.maxFailures": "1", "spark.sql.adaptive.enabled": "false"}
    conf = settings({"spark.master": "local", **tuning}, {})
    assert conf["spark.log.level"] == "INFO"
    assert conf["spark.task.maxFailures"] == "4"
    assert conf["spark.sql.adaptive.enabled"] == "true"


def test_spark_error_summary_prefers_python_message() -> None:
    text = "Job aborted\nTraceback (most recent call last):\n  File x\nMemoryError: no room\n\n\tat java.lang.Thread"
    assert last_words(RuntimeError(text)) == "MemoryError: no room"
    assert last_words(RuntimeError("Job 0 cancelled\n\tat x")) == "Job 0 cancelled"
    assert last_words(RuntimeError("")) == "RuntimeError"


def test_session_secret_is_file_in_pod_and_set_in_local_session() -> None:
    files = settings({}, {**POD, "KUBOTHEK_PRIVATE": "/var/run/kubothek/private"})
    assert files["spark.authenticate.secret.file"] == "/var/run/kubothek/private/rpc-secret"
    assert "spark.authenticate.secret" not in files
    first, second = (settings({"spark.master": "local-cluster[2,1,1024]"}, {}) for _ in range(2))
    assert first["spark.authenticate.secret"] != second["spark.authenticate.secret"]
    loose = {"spark.authenticate": "false", "spark.network.crypto.enabled": "false"}
    for conf in (settings(loose, POD), settings({"spark.master": "local", **loose}, {})):
        assert (conf["spark.authenticate"], conf["spark.network.crypto.enabled"]) == ("true", "true")


@pytest.mark.spark
def test_driver_accepts_only_clients_with_its_secret(spark: SparkSession) -> None:
    context = spark.sparkContext
    jvm = context._gateway.jvm
    scala = jvm.java.lang.Class.forName("org.apache.spark.internal.config.package$").getField("MODULE$").get(None)

    def verified(conf: Any) -> bool:
        """Whether the driver answers a client with this configuration."""
        file = scala.AUTH_SECRET_FILE_DRIVER()
        known = jvm.org.apache.spark.SecurityManager(conf, jvm.scala.Option.empty(), file)
        client = jvm.org.apache.spark.rpc.RpcEnv.create("stranger", "127.0.0.1", "127.0.0.1", 0, conf, known, 0, True)
        try:
            driver = jvm.org.apache.spark.rpc.RpcAddress("localhost", int(context.getConf().get("spark.driver.port")))
            return client.setupEndpointRef(driver, "MapOutputTracker") is not None
        finally:
            client.shutdown()

    conf = context._jsc.sc().conf()
    assert verified(conf)
    with pytest.raises(Py4JError, match=r"Exception thrown in awaitResult|IOException"):
        verified(conf.clone().set("spark.authenticate", "false").set("spark.network.crypto.enabled", "false"))
