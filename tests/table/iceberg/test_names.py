"""Names in manifests: those that Avro allows."""

from __future__ import annotations

from pathlib import Path

import kubothek
from tests.table.iceberg.test_export import check, files, rows


def test_partition_of_other_script_has_ascii_name_in_manifests(tmp_path: Path) -> None:
    table = rows(0, 3).append_column("größe in %", [["a", "b", "a"]])
    dataset = kubothek.open(tmp_path).create_dataset("t", "größe in %", table.schema)
    dataset.append(table)
    exported = dataset.export_iceberg()
    assert check(dataset, exported).spec().fields[0].name == "größe in %"
    (manifest,) = [data for name, data in files(exported).items() if name.endswith("-m.avro")]
    assert b"_x20in_x20" not in manifest  # as pyiceberg replaces spaces, and leaves other letters
