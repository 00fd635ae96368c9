"""From manifests to resources: errors that name the field and the remedy, and nothing that is guessed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from kubothek.api.commit import Commit
from kubothek.api.kinds import InvalidResource, manifest_of, parse
from tests.api.manifests import Case, commit, dataset, files, store, table


def problems(manifest: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidResource) as refused:
        parse(manifest)
    return [str(problem) for problem in refused.value.problems]


def test_parse_reports_all_problems_together() -> None:
    spec = {"urll": "s3://lake", "interval": "soon", "suspend": "no"}
    found = problems(Case("", "ObjectStore", spec).manifest())
    assert len(found) == 4
    assert found[0] == "spec.url: is required"


KNOWN = {"apiVersion": "kubothek.io/v1alpha1"}


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({"kind": "Dataset"}, "apiVersion: must be kubothek.io/v1alpha1, not None"),
        (KNOWN | {"kind": "Datset"}, "kind: unknown kind 'Datset' of kubothek.io/v1alpha1; did you mean Dataset?"),
        (
            KNOWN,
            "kind: unknown kind None of kubothek.io/v1alpha1; known are ObjectStore, Engine, Cube, Dataset, Commit, "
            "Query, Compaction, Verification, GCPolicy, SkippingIndex, Repository, Sync",
        ),
        (KNOWN | {"kind": "Dataset"}, "metadata: is required"),
    ],
)
def test_parse_of_non_resource_is_refused(manifest: dict[str, Any], message: str) -> None:
    assert problems(manifest)[0] == message


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("ObjectStore", store(bucket="x"), "spec.bucket: is not a known field; known are url, endpoint, region"),
        (
            "Dataset",
            table(partition_on=["a"]),
            "spec.table.partition_on: is not a known field; did you mean partitionOn?",
        ),
        ("Commit", commit(files(paths="a.csv")), "spec.source.paths: must be a list, not 'a.csv'"),
        (
            "Commit",
            commit(files(format="csv")),
            "spec.source.format: must be 'CSV', 'JSONLines' or 'Parquet', not 'csv'",
        ),
        ("Engine", {"driver": {"cores": "2"}}, "spec.driver.cores: must be a whole number, not '2'"),
        ("Engine", {"driver": {"memory": "4g"}}, "spec.driver.memory: '4g' is not a quantity: write a number of bytes"),
        ("Dataset", dataset(uuid=1.5), "spec.uuid: must be text, not 1.5"),
        (
            "Commit",
            commit(files(csv={"delim": ";"})),
            "spec.source.csv.delim: is not a known field; did you mean delimiter?",
        ),
    ],
)
def test_parse_error_names_field_and_remedy(kind: str, spec: dict[str, Any], message: str) -> None:
    assert problems(Case("", kind, spec).manifest())[0].startswith(message)


def test_unquoted_yaml_date_is_read_as_text() -> None:
    """An unquoted 2013-01-01; kubectl sends it as text, too."""
    resource = parse(Case("", "Commit", commit(id=date(2013, 1, 1))).manifest())
    assert isinstance(resource, Commit)
    assert resource.id == "2013-01-01"


def test_value_outside_json_is_refused() -> None:
    assert "is no JSON value" in problems(Case("", "Dataset", dataset(uuid=b"x")).manifest())[0]


def test_python_field_name_is_refused() -> None:
    assert problems(Case("", "Dataset", {"store_ref": {"name": "lake"}}).manifest())


def test_metadata_of_api_server_is_parsed() -> None:
    manifest = Case("", "Dataset", dataset()).manifest()
    manifest["metadata"] |= {
        "namespace": "team",
        "uid": "u",
        "generation": 3,
        "creationTimestamp": "2026-11-21T12:00:00Z",
        "annotations": {"reconcile.fluxcd.io/requestedAt": "now"},
        "managedFields": [{"manager": "kubectl"}],
        "finalizers": ["kubothek.io/data-protection"],
    }
    resource = parse(manifest)
    assert resource.metadata.creation_timestamp == datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert (resource.namespace, resource.metadata.generation, resource.requested_at) == ("team", 3, "now")


def test_unknown_status_field_of_later_release_is_ignored() -> None:
    manifest = Case("", "Dataset", dataset()).manifest() | {"status": {"version": 3, "invention": True}}
    assert parse(manifest).status.model_dump(include={"version"}) == {"version": 3}


def test_resource_is_ready_for_current_generation_only() -> None:
    condition = {"type": "Ready", "status": "True", "reason": "Succeeded", "observedGeneration": 1}
    manifest = Case("", "Dataset", dataset()).manifest() | {"status": {"conditions": [condition]}}
    assert parse(manifest).ready
    manifest["metadata"]["generation"] = 2
    assert not parse(manifest).ready


def test_manifest_survives_parse_roundtrip() -> None:
    manifest = Case(
        "",
        "Dataset",
        table(partitionOn=["a"], schema=[{"name": "a", "type": "int64"}, {"name": "b", "type": "string"}]),
    ).manifest()
    assert manifest_of(parse(manifest)) == manifest
