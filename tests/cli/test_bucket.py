"""The same commands on a bucket, with the credentials in a Secret of the manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Kubothek
from tests.local.manifests import commit, dataset, write
from tests.s3server import S3Server

pytestmark = pytest.mark.s3


def manifests(server: S3Server, bucket: str) -> str:
    return f"""\
apiVersion: kubothek.io/v1alpha1
kind: ObjectStore
metadata: {{name: lake}}
spec:
  url: s3://{bucket}/warehouse
  endpoint: {server.endpoint}
  credentialsSecretRef: {{name: keys}}
---
apiVersion: v1
kind: Secret
metadata: {{name: keys}}
stringData:
  AWS_ACCESS_KEY_ID: {server.access_key}
  AWS_SECRET_ACCESS_KEY: {server.secret_key}
"""


def test_put_run_and_query_on_bucket_succeed(
    kubothek: Kubothek, project: Path, s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    (project / "a.csv").write_text("a,b\n1,x\n2,y\n")
    write(project, manifests(s3, bucket), dataset("letters"), commit("first", "letters", "sources/a.csv"))

    assert kubothek("put", "-f", "manifests", "a.csv", "--to", "sources/").out == "uploaded   sources/a.csv  (12 B)\n"
    assert kubothek("put", "-f", "manifests", "a.csv", "--to", "sources/").out == "unchanged  sources/a.csv\n"
    assert kubothek("run", "-f", "manifests").code == 0
    assert kubothek("query", "-f", "manifests", "SELECT sum(a) AS s FROM letters").out.splitlines()[:2] == ["s", "3"]

    again = kubothek("run", "-f", "manifests")
    assert again.out.startswith("up to date: 3 resources (0 jobs, ")
    assert (project / "state" / "kubothek").is_dir()
    on_disk = b"".join(path.read_bytes() for path in (project / "state").rglob("*") if path.is_file())
    assert s3.secret_key.encode() not in on_disk


def test_bucket_with_wrong_credentials_is_reported_and_retried_after_fix(
    kubothek: Kubothek, project: Path, s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    wrong = manifests(s3, bucket).replace(s3.secret_key, "wrong")
    write(project, wrong, dataset("others"))
    refused = kubothek("run", "-f", "manifests")
    assert refused.code == 1
    assert "failed: objectstore/lake (manifests/all.yaml:1): InvalidCredentials: " in refused.err

    write(project, manifests(s3, bucket), dataset("others"))
    assert kubothek("run", "-f", "manifests").code == 0
