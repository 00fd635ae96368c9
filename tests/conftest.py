"""What all tests share: the time budget of the suite, and for those that ask for them an S3 server and the cluster."""

from __future__ import annotations

import gc
import itertools
import math
import os
import re
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests import spark_python
from tests.cluster.apiserver import ApiServer
from tests.s3server import S3Server
from tests.testcluster import Cluster, ensure_cluster, why_no_cluster
from tests.testcluster.paths import cache_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # which takes a moment that most tests can do without

set_hypothesis_home_dir(cache_root() / "hypothesis")
settings.register_profile("suite", derandomize=True, deadline=None)
settings.register_profile("soak", derandomize=False, deadline=None)
# CI tries the same examples always, `make soak` new ones each time.
settings.load_profile("soak" if os.environ.get("KUBOTHEK_SOAK") else "suite")

ON_CLUSTER = ("tests/testcluster/", "tests/e2e/")
"""Where the tests that are marked `cluster` are."""
WITH_SPARK = ("tests/spark/", "tests/jobs/", "tests/table/skipping/test_format_spark.py", "tests/benchmarks/")
"""Where tests use the fixture `spark`."""
WITH_API_SERVER = ("tests/cluster/", "tests/chart/", "tests/api/test_crds_on_apiserver.py")
"""Where tests use the fixture `api_server`."""
WITH_ENGINES = ("tests/engines/",)
"""Where tests use engines and tables that take seconds to start and to make."""
TOGETHER = {"cluster": ON_CLUSTER, "spark": WITH_SPARK, "engines": WITH_ENGINES, "API server": WITH_API_SERVER}
"""What runs in one process each."""
LONG = ("tests/local/test_demo.py", "tests/cli/", "tests/table/log/")
"""What takes longest of all others."""
_LEFT_OUT = re.compile(r"^pytestmark = .*\bmark\.(slow|cluster)\b", re.MULTILINE)
_GIVE_WAY = 5
"""The niceness of tests beside those on the cluster."""
BUDGET_SECONDS = {"tools and images": 20 * 60, "all tests": 18 * 60 + 27 * 60}
"""What a cold run may take on 2 cores. Where CI=true, a suite that outgrows it fails, before CI's own limit cuts it
off; elsewhere it is a report, as machines differ. The cluster's 18 minutes and the 27 of all others are one sum, as
they pass beside each other and on the same cores.
"""


class Budget:
    """Knows what the session took, and in CI fails the session that exceeds its share.

    Counted on the wall, as tests run in several processes. What the cluster's add up to is told, not judged.
    """

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.cluster = 0.0
        self.rooms: defaultdict[str, float] = defaultdict(float)
        """Seconds by directory, of all processes."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts set-up and tear-down too: a slow fixture is as slow as a slow test."""
        self.rooms[report.nodeid.partition("::")[0].rpartition("/")[0]] += report.duration
        if "cluster" in report.keywords:
            self.cluster += report.duration

    def spent(self) -> dict[str, float]:
        """Seconds by group."""
        return {
            # .ci/test measures what runs before pytest.
            "tools and images": float(os.environ.get("KUBOTHEK_PREPARE_SECONDS", "0")),
            "cluster": self.cluster,
            "all tests": time.monotonic() - self.started,
        }

    def exceeded(self) -> list[str]:
        """The groups over budget, each with its figures; none of a soak, which takes as long as it was asked to."""
        if os.environ.get("KUBOTHEK_SOAK"):
            return []
        return [
            f"{group}: {seconds:.0f} s of {BUDGET_SECONDS[group]} s"
            for group, seconds in self.spent().items()
            if seconds > BUDGET_SECONDS.get(group, math.inf)
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A suite over budget is a failed suite where CI=true."""
        if os.environ.get("CI") == "true" and self.exceeded() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line of where the time went, and the verdict."""
        terminalreporter.write_line(
            "time spent: " + ", ".join(f"{group} {seconds:.0f} s" for group, seconds in self.spent().items())
        )
        slowest = sorted(self.rooms.items(), key=lambda room: -room[1])
        said = ", ".join(f"{room} {seconds:.0f} s" for room, seconds in slowest[:8])
        terminalreporter.write_line(f"slowest directories: {said}")
        for line in self.exceeded():
            terminalreporter.write_line(f"OVER BUDGET {line}", red=True)
        if self.exceeded() and os.environ.get("CI") != "true":
            terminalreporter.write_line("a report, not a verdict: it fails the suite where CI=true")


def pytest_configure(config: pytest.Config) -> None:
    """Register the budget for every run, in the process that reports."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Budget(), "kubothek-budget")


class OneProcessEach(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """Which tests `--numprocesses` runs where: those on the cluster in one process, which mostly waits; those with
    Spark in one, and those with an API server, as one serves them all; the others of one file in one as well.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next(
            (name for name, places in TOGETHER.items() if nodeid.startswith(places)), super()._split_scope(nodeid)
        )


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneProcessEach:
    """The scheduler of a run in several processes."""
    return OneProcessEach(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make check` does not even import files whose tests are all marked as slow or for the cluster."""
    if "not slow" not in config.option.markexpr:
        return None
    if f"{collection_path.relative_to(config.rootpath).as_posix()}/".startswith(ON_CLUSTER):
        return True
    if collection_path.suffix != ".py":
        return None
    return True if _LEFT_OUT.search(collection_path.read_text()) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt modules and collected tests from garbage collection: they stay until the process ends."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first, so that no process is left with it at the end."""
    order: tuple[str | tuple[str, ...], ...] = (*TOGETHER.values(), *LONG, "")
    items.sort(key=lambda item: next(at for at, places in enumerate(order) if item.nodeid.startswith(places)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The cluster's tests are the longest chain, and what they wait for runs on the same cores: others give way."""
    if "PYTEST_XDIST_WORKER" in os.environ and not item.nodeid.startswith(ON_CLUSTER):
        os.nice(max(0, _GIVE_WAY - os.nice(0)))


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3 server that all tests share. A test that stops it, or counts its requests, starts its own."""
    with S3Server() as server:
        yield server


@pytest.fixture
def secret(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's credentials as a mounted Secret, which the test may change."""
    return s3.write_secret(tmp_path_factory.mktemp("secret"))


_buckets = itertools.count()


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """The name of an empty bucket."""
    return s3.create_bucket(f"bucket-{next(_buckets)}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One real session for all tests of a process: it takes seconds to start."""
    from kubothek.spark.session import running

    conf = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.ui.enabled": "false"}
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patched:  # for the JVM, and not for what tests start
            patched.setenv("PYSPARK_PYTHON", str(spark_python.executable(tmp_path_factory.mktemp("python"))))
            session = stack.enter_context(running(conf))
        yield session


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """A real API server with our CRDs, which all tests of a process share."""
    with ApiServer() as server:
        server.install_crds()
        yield server


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The real cluster, with the images of this checkout in it; no other process removes it meanwhile."""
    if (reason := why_no_cluster()) and not os.environ.get("CI"):
        pytest.skip(reason)
    found = ensure_cluster(images=True)
    with found.held():
        yield found
