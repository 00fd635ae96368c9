from __future__ import annotations

import pytest

from kubothek.spark.errors import SparkUnavailable, last_words
from kubothek.spark.session import settings

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


def test_in_a_pod_spark_asks_the_cluster_for_executors_that_find_the_pod() -> None:
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


def test_an_ipv6_address_is_bracketed() -> None:
    assert settings({}, {**POD, "POD_IP": "fd00::7"})["spark.driver.host"] == "[fd00::7]"


def test_a_named_master_needs_no_pod_and_stays_on_this_machine() -> None:
    conf = settings({"spark.master": "local-cluster[2,1,1024]"}, POD)
    assert conf["spark.master"] == "local-cluster[2,1,1024]"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert not [key for key in conf if "kubernetes" in key]


@pytest.mark.parametrize(
    ("master", "with_retries"),
    [("local", "local[1,4]"), ("local[2]", "local[2,4]"), ("local[*]", "local[*,4]"), ("local[2,1]", "local[2,1]")],
)
def test_tasks_are_tried_again_on_one_machine_too(master: str, with_retries: str) -> None:
    assert settings({"spark.master": master}, {})["spark.master"] == with_retries


def test_without_a_master_and_outside_of_a_pod_there_is_no_place_to_run() -> None:
    with pytest.raises(SparkUnavailable, match=r"no spark\.master, and this is no driver pod: POD_IP is not set"):
        settings({}, {key: value for key, value in POD.items() if key != "POD_IP"})


def test_a_job_may_tune_but_not_break_what_the_write_relies_on() -> None:
    tuning = {"spark.log.level": "INFO", "spark.task.maxFailures": "1", "spark.sql.adaptive.enabled": "false"}
    conf = settings({"spark.master": "local", **tuning}, {})
    assert conf["spark.log.level"] == "INFO"
    assert conf["spark.task.maxFailures"] == "4"
    assert conf["spark.sql.adaptive.enabled"] == "true"


def test_the_last_words_of_spark_are_pythons_if_it_has_some() -> None:
    text = "Job aborted\nTraceback (most recent call last):\n  File x\nMemoryError: no room\n\n\tat java.lang.Thread"
    assert last_words(RuntimeError(text)) == "MemoryError: no room"
    assert last_words(RuntimeError("Job 0 cancelled\n\tat x")) == "Job 0 cancelled"
    assert last_words(RuntimeError("")) == "RuntimeError"
