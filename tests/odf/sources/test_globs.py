"""Fetching files by a pattern (FE-02, FE-09) and from containers (FE-03, FE-10)."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubothek.controller.tasks import containers as cluster_containers
from kubothek.errors import InputError, SourceFailed, SourceRefused
from kubothek.odf.sources.fetch import (
    SOURCE_NAME,
    ContainerOutput,
    ContainerRun,
    FetchContext,
    Fetched,
    containers,
    in_stores,
    poll,
)
from kubothek.odf.sources.fetch.containers import run_locally
from kubothek.odf.sources.readers import FileContent
from kubothek.odf.sources.readers.globs import matcher
from kubothek.odf.spec.events import SourceState
from kubothek.odf.spec.sources import (
    CompressionFormat,
    EnvVar,
    EventTimeSourceFromPath,
    FetchStepContainer,
    FetchStepFilesGlob,
    FetchStepUrl,
    PrepStepDecompress,
    SourceOrdering,
)
from kubothek.storage import StoreConfig, open_store
from tests.odf.sources.conftest import NOW_MS, all_rows, context, is_up_to_date, polled, source
from tests.s3server import S3Server


def state(value: str, kind: str = "odf/etag") -> SourceState:
    return SourceState(source_name=SOURCE_NAME, kind=kind, value=value)


def all_polls(
    step: FetchStepFilesGlob | FetchStepContainer, before: SourceState | None = None, ctx: FetchContext | None = None
) -> list[Fetched]:
    """What polls give, one after the other, as long as there is more."""
    found = [polled(step, before, ctx=ctx)]
    while found[-1].has_more:
        found.append(polled(step, found[-1].state, ctx=ctx))
    assert is_up_to_date(step, found[-1].state, ctx)
    return found


def put(directory: Path, *names: str) -> None:
    for number, name in enumerate(names):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number},{name}\n")


@pytest.mark.requirement("FE-02", "FE-09")
def test_glob_poll_returns_one_file_in_name_order(tmp_path: Path) -> None:
    put(tmp_path, "b.csv", "a.csv", "c.txt", "d/e.csv", ".csv")
    step = FetchStepFilesGlob(path=f"{tmp_path}/*.csv")
    found = all_polls(step)
    assert [all_rows(each)[0]["b"] for each in found] == ["a.csv", "b.csv"]
    assert [(each.state, each.has_more) for each in found] == [(state("a.csv"), True), (state("b.csv"), False)]
    assert [each.event_time for each in found] == [NOW_MS] * 2
    put(tmp_path, "aa.csv", "z.csv")  # the first comes too late: its name is before the last one
    assert [each.state for each in all_polls(step, state("b.csv"))] == [state("z.csv")]
    assert is_up_to_date(FetchStepFilesGlob(path=f"{tmp_path}/*.json"), None)


@pytest.mark.requirement("FE-02")
def test_glob_orders_files_by_name_including_directory(tmp_path: Path) -> None:
    put(tmp_path, "2021/a.csv", "2020/b.csv", "2020/x/c.csv")
    found = all_polls(FetchStepFilesGlob(path=f"file://{tmp_path}/**/*.csv"))
    assert [each.state for each in found] == [state("2020/b.csv"), state("2020/x/c.csv"), state("2021/a.csv")]


@pytest.mark.requirement("FE-02")
def test_glob_orders_files_by_event_time(tmp_path: Path) -> None:
    put(tmp_path, "b-2020-01-01.csv", "a-2020-01-02.csv", "c-2020-01-02.csv")
    time = EventTimeSourceFromPath(pattern=r"(\d+-\d+-\d+)")
    step = FetchStepFilesGlob(path=f"{tmp_path}/*.csv", event_time=time, order=SourceOrdering.BY_EVENT_TIME)
    found = all_polls(step)
    assert [each.state for each in found] == [
        state(f"{n}.csv") for n in ("b-2020-01-01", "a-2020-01-02", "c-2020-01-02")
    ]
    assert [str(each.event_time)[:10] for each in found] == ["2020-01-01", "2020-01-02", "2020-01-02"]
    with pytest.raises(InputError, match=r"ByEventTime needs fetch.eventTime FromPath"):
        polled(FetchStepFilesGlob(path=f"{tmp_path}/*", order=SourceOrdering.BY_EVENT_TIME))
    with pytest.raises(InputError, match=r"must be absolute, or an s3:// URL"):
        polled(FetchStepFilesGlob(path="data/*"))


@pytest.mark.requirement("FE-02")
def test_glob_matches_objects_of_store(tmp_path: Path) -> None:
    put(tmp_path, "in/b.csv", "in/a.csv", "in/x/c.csv", "other/a.csv")
    store = open_store(StoreConfig(tmp_path.as_uri()))
    asked: list[tuple[str, str]] = []
    listed: Callable[..., Any] = store.list

    def listing(prefix: str, start_after: str = "") -> Any:
        asked.append((prefix, start_after))
        return listed(prefix, start_after)

    store.list = listing  # type: ignore[method-assign]
    ctx = context(locate=lambda url: (store, url.removeprefix("s3://bucket/")))
    found = all_polls(FetchStepFilesGlob(path="s3://bucket/in/*.csv"), ctx=ctx)
    assert [each.state for each in found] == [state("a.csv"), state("b.csv")]
    assert [all_rows(each)[0]["b"] for each in found] == ["in/a.csv", "in/b.csv"]
    assert asked[:2] == [("in/", ""), ("in/", "in/a.csv")]  # no more is listed than has to be
    with pytest.raises(SourceRefused, match=r"may read no object store"):
        polled(FetchStepFilesGlob(path="s3://bucket/*"))


@pytest.mark.requirement("FE-02")
@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("*.csv", ["a.csv", ".csv"], ["a/b.csv", "a.csvx"]),
        ("a?[0-9].x", ["ab1.x"], ["ab.x", "a/1.x", "abx.x"]),
        ("[!a]*", ["b", "bc"], ["a", "/b"]),
        ("**/x", ["x", "a/x", "a/b/x"], ["ax"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "b/c"]),
        ("[", ["["], ["x"]),
        ("a+(b).c", ["a+(b).c"], ["aab.c"]),
    ],
)
def test_glob_pattern_matches_expected_names(pattern: str, names: list[str], others: list[str]) -> None:
    assert all(map(matcher(pattern), names))
    assert not any(map(matcher(pattern), others))


class Container:
    """Stands for containers: counts to three, two rows a run."""

    def __init__(self) -> None:
        self.runs: list[ContainerRun] = []

    def __call__(self, run: ContainerRun) -> ContainerOutput:
        self.runs.append(run)
        done = int(run.env.get("ODF_ETAG", "0"))
        if done == 3:
            return ContainerOutput(data=FileContent.of_bytes(b"", "out"))
        data = FileContent.of_bytes(f"{done},x\n".encode(), "out")
        return ContainerOutput(data=data, new_etag=str(done + 1), has_more=done < 2)


@pytest.mark.requirement("FE-03", "FE-10")
def test_container_poll_reports_new_data_and_state() -> None:
    container = Container()
    env = (EnvVar(name="A", value="1"), EnvVar(name="TOKEN"))
    step = FetchStepContainer(image="x/y:1", command=("fetch",), args=("-v", "a b"), env=env)
    ctx = context(run_container=container, env={"TOKEN": "t", "OTHER": "o"})
    found = all_polls(step, ctx=ctx)
    assert [all_rows(each)[0]["a"] for each in found] == [0, 1, 2]
    assert [each.state for each in found] == [state("1"), state("2"), state("3")]
    assert {each.event_time for each in found} == {NOW_MS}
    protocol = {
        "ODF_NEW_ETAG_PATH": "/opt/odf/out/new-etag",
        "ODF_NEW_LAST_MODIFIED_PATH": "/opt/odf/out/new-last-modified",
        "ODF_NEW_HAS_MORE_DATA_PATH": "/opt/odf/out/has-more",
    }
    expected = {"ODF_BATCH_SIZE": "10000", "A": "1", "TOKEN": "t", **protocol}
    assert container.runs[0] == ContainerRun(image="x/y:1", command=("fetch",), args=("-v", "a b"), env=expected)
    assert container.runs[1].env == {**expected, "ODF_ETAG": "1"}


@pytest.mark.requirement("FE-10")
def test_container_state_is_read_from_its_output() -> None:
    step, since = FetchStepContainer(image="x", env=(EnvVar(name="ODF_BATCH_SIZE", value="5"),)), "2026-01-02T03:04:05Z"
    seen: list[ContainerRun] = []

    def run(output: dict[str, Any], data: bytes = b"") -> FetchContext:
        def one(given: ContainerRun) -> ContainerOutput:
            seen.append(given)
            return ContainerOutput(data=FileContent.of_bytes(data, "out"), **output)

        return context(run_container=one)

    found = polled(step, state("q"), ctx=run({"new_last_modified": "2026-01-02T04:04:05+01:00\n"}))
    assert (found.rows, found.state) == (None, state(since, "odf/last-modified"))
    found = polled(step, found.state, ctx=run({}, b"1,x\n"))  # what is not renewed is kept
    assert (found.state, seen[-1].env["ODF_LAST_MODIFIED"]) == (state(since, "odf/last-modified"), since)
    assert seen[-1].env["ODF_BATCH_SIZE"] == "5"
    assert is_up_to_date(step, state("q"), run({"new_etag": "q"}))
    assert is_up_to_date(step, None, run({}))


@pytest.mark.requirement("FE-03")
def test_container_fetch_is_refused_unless_allowed() -> None:
    with pytest.raises(SourceRefused, match=r"image 'x': containers are not allowed here"):
        polled(FetchStepContainer(image="x"))
    step = FetchStepContainer(image="x", env=(EnvVar(name="HOME"),))
    with pytest.raises(InputError, match=r"needs variable 'HOME', which is not set; variables that are set: none"):
        polled(step, ctx=context(run_container=Container()))


ENGINE = """#!/bin/sh
# stands for docker: the last argument is a script, and /opt/odf/out the directory of --volume
for last; do :; done
out=$(echo "$4" | cut -d: -f1)
export out
echo "$@" > "$out/../../arguments"
env > "$out/../../environ"
while read -r variable; do export "$variable"; done < "${5#--env-file=}"
exec /bin/sh -c "$last"
"""


@pytest.mark.requirement("FE-10")
def test_container_fetch_runs_with_local_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker(tmp_path, monkeypatch)
    ctx = context(run_container=run_locally("engine"), env={"TOKEN": "s3cret"})

    def step(script: str, **options: Any) -> FetchStepContainer:
        return FetchStepContainer(image="image", args=(script,), env=(EnvVar(name="TOKEN"),), **options)

    found = polled(step("echo 1,$TOKEN; printf ' 7\\n' > $out/new-etag; touch $out/has-more"), ctx=ctx)
    assert (all_rows(found), found.state, found.has_more) == ([{"a": 1, "b": "s3cret"}], state("7"), True)
    assert "s3cret" not in (tmp_path / "arguments").read_text()  # which are for everyone to see
    assert is_up_to_date(step("true"), None, ctx)
    with pytest.raises(SourceFailed, match=r"of image 'image' ended with 3: no \$\{\{ env.TOKEN \}\}"):
        polled(step("echo no $TOKEN >&2; exit 3", command=("sh", "-c")), ctx=ctx)
    assert "--entrypoint=sh -- image -c" in (tmp_path / "arguments").read_text()
    with pytest.raises(InputError, match=r"there is no 'nothing' on this machine"):
        run_locally("nothing")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["arguments", "bin", "environ"]
    assert poll(source(step("true")), None, ctx)


@pytest.mark.parametrize(
    "image", ["--volume=/:/host", "-v/:/host", "--privileged", "a b", "", "x\n--privileged", "ghcr.io/x/y:", "$(id)"]
)
def test_container_image_that_looks_like_option_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str
) -> None:
    docker(tmp_path, monkeypatch)
    with pytest.raises(SourceRefused, match="is not an image reference"):
        polled(FetchStepContainer(image=image, args=("--privileged", "alpine", "true")), ctx=local_context())
    assert not (tmp_path / "arguments").exists(), "docker was not started"


def test_container_variables_never_reach_the_docker_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker(tmp_path, monkeypatch)
    monkeypatch.setenv("DOCKER_CONFIG", "/home/user/.docker")
    hostile = {"DOCKER_HOST": "tcp://203.0.113.1:2375", "LD_PRELOAD": "/x.so", "PATH": "/x", "DOCKER_CONFIG": "/x"}
    step = FetchStepContainer(
        image="ghcr.io/acme/planes:1.4",
        command=("--privileged",),
        args=("-v", "/:/host", "echo 1,$DOCKER_HOST"),
        env=tuple(EnvVar(name=name, value=value) for name, value in hostile.items()),
    )
    found = polled(step, ctx=local_context())
    assert all_rows(found) == [{"a": 1, "b": "tcp://203.0.113.1:2375"}]
    environ = dict(line.split("=", 1) for line in (tmp_path / "environ").read_text().splitlines() if "=" in line)
    assert environ.get("DOCKER_CONFIG") == "/home/user/.docker", "the user's own settings of docker hold"
    assert not {"DOCKER_HOST", "LD_PRELOAD"} & set(environ)
    assert environ["PATH"] != "/x"
    arguments = (tmp_path / "arguments").read_text().strip()
    assert arguments.endswith("--entrypoint=--privileged -- ghcr.io/acme/planes:1.4 -v /:/host echo 1,$DOCKER_HOST")
    assert "203.0.113.1" not in arguments


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("A=B", "x", "have names of letters"),
        ("#A", "x", "have names of letters"),
        ("A", "x\nDOCKER_HOST=y", "'A' have line breaks"),
        ("A", "x\0", "has a zero byte"),
    ],
)
def test_container_variable_that_docker_misreads_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, problem: str
) -> None:
    docker(tmp_path, monkeypatch)
    step = FetchStepContainer(image="image", args=("true",), env=(EnvVar(name=name, value=value),))
    with pytest.raises(InputError, match=problem):
        polled(step, ctx=local_context())
    assert not (tmp_path / "arguments").exists(), "docker was not started"


def test_container_image_pattern_is_equal_in_library_and_operator() -> None:
    assert containers.IMAGE.pattern == cluster_containers._IMAGE.pattern


def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that stands for docker: it writes down its arguments and its environment."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/engine").write_text(ENGINE)
    (tmp_path / "bin/engine").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def local_context() -> FetchContext:
    return context(run_container=run_locally("engine"))


@pytest.mark.requirement("FE-02", "FE-01")
@pytest.mark.s3
def test_glob_and_url_fetch_read_real_s3_server(s3: S3Server, secret: Path, bucket: str) -> None:
    config = StoreConfig(f"s3://{bucket}/lake", s3.endpoint, s3.region, str(secret))
    store = open_store(config)
    names = [f"day={number:02}/x.csv.gz" for number in range(12)]
    for number, name in enumerate(names):
        store.put(f"in/{name}", gzip.compress(f"{number},{name}\n".encode()))
    store.put("in/other.txt", b"")
    ctx, unpack = context(locate=in_stores([config])), PrepStepDecompress(format=CompressionFormat.GZIP)
    step, before, found = FetchStepFilesGlob(path=f"s3://{bucket}/lake/in/*/*.gz"), None, []
    while isinstance(one := poll(source(step, prepare=(unpack,)), before, ctx), Fetched):
        found += all_rows(one)
        before = one.state
    assert found == [{"a": number, "b": name} for number, name in enumerate(names)]
    url = FetchStepUrl(url=f"s3://{bucket}/lake/in/{names[3]}")
    one = polled(url, ctx=ctx, prepare=(unpack,))
    assert all_rows(one) == found[3:4]
    assert is_up_to_date(url, one.state, ctx)
    with pytest.raises(SourceRefused, match=r"is in no store that this source may read"):
        polled(FetchStepUrl(url=f"s3://{bucket}/elsewhere/x"), ctx=ctx)


def test_glob_pattern_with_many_stars_matches_in_bounded_time() -> None:
    matches = matcher("in/" + "**/" * 20 + "*.csv")
    assert not matches("in/" + "a/" * 40 + "x.txt")
    assert matches("in/" + "a/" * 40 + "x.csv")


@pytest.mark.parametrize("pattern", ["[z-a]", "a/[!z-a].csv"])
def test_glob_pattern_with_invalid_set_is_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="a set in brackets is not valid"):
        matcher(pattern)


def test_glob_of_local_files_excludes_symbolic_links(tmp_path: Path) -> None:
    put(tmp_path / "outside", "secret.csv")
    put(tmp_path / "real", "a.csv", "sub/b.csv")
    (tmp_path / "in").symlink_to("real")  # the fixed part of the pattern may be a link
    (tmp_path / "real/c.csv").symlink_to(tmp_path / "outside/secret.csv")
    (tmp_path / "real/d").symlink_to(tmp_path / "outside")
    (tmp_path / "real/e.csv").symlink_to("a.csv")
    found = all_polls(FetchStepFilesGlob(path=f"{tmp_path}/in/**/*.csv"))
    assert [each.name for each in found] == [f"{tmp_path}/in/{name}" for name in ("a.csv", "sub/b.csv")]
