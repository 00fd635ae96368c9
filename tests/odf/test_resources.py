"""Resources of RFC-018, with the examples of specification 0.39."""

from __future__ import annotations

import pytest

from kubothek.errors import FormatInvalid, LakeError, UnsupportedVersion
from kubothek.odf.spec.events import AddPushSource, SetLicense, SetPollingSource, SetTransform
from kubothek.odf.spec.manifests import read_snapshot, write_snapshot
from kubothek.odf.spec.resources import read_definition, read_headers, write_resources
from kubothek.odf.spec.sources import (
    FetchStepContainer,
    FetchStepEthereumLogs,
    FetchStepFilesGlob,
    FetchStepMqtt,
    FetchStepUrl,
    MergeStrategyAppend,
)
from kubothek.odf.spec.versions import SpecVersion
from tests.odf.vectors import GOLDEN

EXAMPLES = GOLDEN / "0.39" / "examples"
DATASET = """
$schema: https://opendatafabric.org/schemas/dataset/v1alpha1/Dataset
headers: {name: d}
spec: {kind: Root, metadata: []}
"""
SOURCE = """
$schema: https://opendatafabric.org/schemas/source/v1alpha1/Source
headers: {name: s}
spec:
  read: {kind: NdJson}
"""
INGRESS = {
    "{kind: Url, url: 'https://example.org/x'}": FetchStepUrl,
    "{kind: FilesGlob, path: /tmp/*.csv, order: ByName}": FetchStepFilesGlob,
    "{kind: Container, image: example.org/x:1, env: [{name: A}]}": FetchStepContainer,
    "{kind: Mqtt, host: h, port: 1883, topics: [{path: a/#, qos: AtLeastOnce}]}": FetchStepMqtt,
    "{kind: EvmLogs, chainId: 1}": FetchStepEthereumLogs,
}


def joined(*paths: str) -> str:
    return "\n---\n".join((EXAMPLES / path).read_text() for path in paths)


@pytest.mark.requirement("RS-01")
def test_example_of_polling_source_is_one_definition() -> None:
    found = read_definition(joined("source-polling-url/source.yaml", "source-polling-url/dataset.yaml"))
    source = found.metadata[-1]
    assert (found.name, len(found.metadata)) == ("ca.bankofcanada", 3)
    assert isinstance(source, SetPollingSource)
    assert isinstance(source.fetch, FetchStepUrl)
    assert source.fetch.url.endswith("?start_date=${{ env.startDate }}")
    assert source.fetch.headers is not None
    assert source.fetch.headers[0].value == "Bearer ${{ env.apiKey }}"


def test_example_of_rest_endpoint_is_push_source() -> None:
    found = read_definition(joined("source-push-http/dataset-raw.yaml", "source-push-http/source.yaml"))
    source = found.metadata[-1]
    assert isinstance(source, AddPushSource)
    assert (source.source_name, source.merge) == ("sensor.temp.http", MergeStrategyAppend())


def test_examples_of_single_datasets_are_read() -> None:
    assert read_definition(joined("auth-accounts-permissions/dataset-bobs.yaml")).name == "bob/bobs-dataset"
    assert read_definition(joined("storage-volume/dataset.yaml")).metadata == ()
    derived = read_definition(joined("source-push-http/dataset-aggregates.yaml"))
    assert isinstance(derived.metadata[0], SetTransform)
    assert isinstance(read_definition(joined("sink-webhook-dataset-events/dataset.yaml")).metadata[1], SetLicense)


def test_examples_of_other_resources_are_named_unsupported() -> None:
    types = set()
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        text = path.read_text()
        if "/v1alpha1/Dataset\nheaders" in text or "/v1alpha1/Source\n" in text:
            continue
        with pytest.raises(UnsupportedVersion, match="Dataset and Source of version v1alpha1 can") as error:
            read_definition(joined("storage-volume/dataset.yaml", str(path.relative_to(EXAMPLES))))
        types.add(str(error.value).split("'")[1].rpartition("/")[2])
    assert {"Flow", "Projection", "SecretSet"} <= types


@pytest.mark.parametrize("ingress", INGRESS)
def test_each_ingress_kind_is_a_fetch_step_and_comes_back(ingress: str) -> None:
    found = read_definition(f"{DATASET}---\n{SOURCE}  ingress: {ingress}\n")
    (source,) = found.metadata
    assert isinstance(source, SetPollingSource)
    assert type(source.fetch) is INGRESS[ingress]
    assert read_definition(write_resources(found)) == found


def test_snapshot_with_variables_comes_back_from_resources() -> None:
    text = joined("source-polling-url/dataset.yaml", "source-polling-url/source.yaml")
    found = read_definition(text)
    written = write_resources(found)
    assert "apiKey: SecretSet:ca.bankofcanada#apiKey" in written
    assert "${{ config.apiKey }}" in written
    assert read_definition(written) == found
    assert read_definition(write_snapshot(found, SpecVersion.V0_39)) == found
    assert read_snapshot(write_snapshot(found, SpecVersion.V0_39)) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SOURCE, "has 0 Dataset resources"),
        (f"{DATASET}---{DATASET}", "has 2 Dataset resources"),
        (f"{DATASET}---\na: 1\n", r"without \$schema"),
        (f"{DATASET}---{SOURCE}  vocab: {{}}\n", "give it a SetVocab"),
        (f"{DATASET}---{SOURCE}  prepare: []\n", "is for polling sources"),
        (f"{DATASET}---{SOURCE}  other: 1\n", "unknown field 'other'"),
        (f"{DATASET}---{SOURCE}  ingress: {{kind: Ftp}}\n", r"Source\.spec\.ingress\.kind must be one of"),
        (f"{DATASET}---{SOURCE}  ingress: 1\n", "must be a mapping with a kind"),
        (f"{DATASET}---{SOURCE}  ingress: {{kind: Url, url: '${{{{ config.a }}}}'}}\n", "uses config.a"),
        (DATASET.replace("name: d", "id: x"), r"Dataset\.headers\.name is missing"),
        (DATASET.replace("name: d", "name: [x]"), "must be a text"),
        (DATASET.replace("name: d", "name: d, account: [x]"), "must be a text"),
        (DATASET.replace("kind: Root", "did: x, kind: Root"), "pull it"),
        (DATASET.replace("kind: Root, ", ""), r"Dataset\.spec\.kind is missing"),
        (f"{DATASET}status: {{}}", "unknown field 'status'"),
    ],
)
def test_wrong_resource_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(FormatInvalid, match=message):
        read_definition(text)


@pytest.mark.requirement("RS-02")
def test_name_and_labels_of_a_polling_source_come_back() -> None:
    source = SOURCE.replace("name: s", "name: s, labels: {a: [1, {b: 2.5}]}")
    text = f"{DATASET}---{source}  ingress: {{kind: FilesGlob, path: /x}}\n"
    headers = read_headers(text)
    assert headers == {"Source": {"name": "s", "labels": {"a": [1, {"b": 2.5}]}}}
    assert read_headers(write_resources(read_definition(text), headers)) == headers


@pytest.mark.parametrize("labels", ["[a]", "{a: 1e400}"])
def test_labels_that_are_no_json_object_are_refused(labels: str) -> None:
    with pytest.raises(FormatInvalid, match=r"Dataset\.headers\.labels"):
        read_headers(DATASET.replace("name: d", f"name: d, labels: {labels}"))


def test_two_polling_sources_are_refused() -> None:
    polled = f"---{SOURCE}  ingress: {{kind: FilesGlob, path: /x}}\n"
    with pytest.raises(LakeError, match="one polling Source at most"):
        read_definition(f"{DATASET}{polled}{polled}")
