"""The layout that a Dataset asks for, on its way into a job."""

from __future__ import annotations

from kubothek.api.dataset import Dataset
from kubothek.api.kinds import parse
from kubothek.controller.references import dataset_ref
from kubothek.jobs import translate
from kubothek.table.layout import Layout
from kubothek.table.log import Head
from tests.controller.fake import Fake

FULL = {
    "partitionOn": ["month"],
    "sortBy": ["carrier", "day"],
    "bucketBy": ["flight"],
    "numBuckets": 16,
    "targetFileSize": "1Mi",
    "rowGroupRows": 1000,
    "compression": "SNAPPY",
    "dictionaryColumns": [],
    "schemaEvolution": "Compatible",
}


def dataset(**table: object) -> Dataset:
    spec = {"storeRef": {"name": "lake"}, "table": table}
    parsed = parse(
        {"apiVersion": "kubothek.io/v1alpha1", "kind": "Dataset", "metadata": {"name": "flights"}, "spec": spec}
    )
    assert isinstance(parsed, Dataset)
    return parsed


def test_dataset_layout_passes_every_field_to_table() -> None:
    ref = dataset_ref(dataset(**FULL), Fake().settings)
    assert translate.layout(ref, Head("flights")) == Layout(
        partition_on=("month",),
        sort_by=("carrier", "day"),
        bucket_by=("flight",),
        num_buckets=16,
        target_file_bytes=1 << 20,
        row_group_rows=1000,
        compression="SNAPPY",
        dictionary_columns=(),
    )
    assert translate.evolves(ref.table)


def test_dataset_layout_defaults_match_table_defaults() -> None:
    ref = dataset_ref(dataset(), Fake().settings)
    assert translate.layout(ref, Head("flights")) == Layout()
    assert not translate.evolves(ref.table)
