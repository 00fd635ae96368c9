"""``kubothek verify``: the exit code tells, and the first wrong thing is named in one line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kubothek as door
from kubothek.odf.spec.events import AddData, AddPushSource
from kubothek.odf.spec.sources import MergeStrategyLedger, ReadStepCsv
from kubothek.storage import StoreConfig, open_store
from tests.cli.conftest import Kubothek
from tests.local.manifests import STORE, commit, dataset, write
from tests.odf.making import SCHEMA, Maker, later, rows, small


@pytest.fixture
def store(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a table at version 3 that has an index."""
    root = tmp_path / "filled"
    root.mkdir()
    letters = door.open(root.as_uri()).create_dataset("letters", indices={"n": "Kartothek"})
    for n in range(2):
        letters.append(pa.table({"n": [n]}))
    monkeypatch.setenv("KUBOTHEK_STORE", root.as_uri())
    return root


def newest(store: Path) -> Path:
    files = door.open(store.as_uri()).dataset("letters").snapshot().head.files()
    return store / list(files.values())[-1]


def test_verify_of_valid_table_succeeds(kubothek: Kubothek, store: Path) -> None:
    size = sum(path.stat().st_size for path in store.glob("letters/table/*.parquet"))
    assert kubothek("verify", "letters") == (0, f"letters: version 3 is sound: 2 files, {size:,} bytes\n", "")
    assert kubothek("verify", "letters", "--level", "chain") == (0, "letters: version 3 is sound\n", "")
    assert "1 file," in kubothek("verify", "letters", "--as-of", "2").out
    assert "1 file," in kubothek("verify", "letters", "--since", "2").out


def test_verify_names_first_corruption_and_remedy(kubothek: Kubothek, store: Path) -> None:
    file = newest(store)
    file.write_bytes(file.read_bytes()[:-1])
    answer = kubothek("verify", "letters")
    assert (answer.code, answer.out) == (1, "")
    (line,) = answer.err.splitlines()
    key = file.relative_to(store)
    assert line.startswith(f"error: Corrupt: letters: FileHash: {key}: its bytes are not those that were committed")
    assert "put the file back from a copy" in line


def test_verify_of_bare_odf_dataset_succeeds(kubothek: Kubothek, project: Path) -> None:
    root = project / "odf"
    root.mkdir()
    maker = small(open_store(StoreConfig(root.as_uri())))
    answer = kubothek("verify", "--odf", "odf")
    assert (answer.code, answer.err) == (0, "")
    assert f"is sound: 4 blocks, 2 slices, {answer.out.split('slices, ')[1].split()[0]} bytes" in answer.out
    assert str(maker.blocks[-1].hash) in answer.out
    (root / "blocks" / str(maker.blocks[3].hash)).write_bytes(b"forged")
    assert kubothek("verify", "--odf", "odf", "--level", "chain").code == 1
    assert kubothek("verify", "--odf", "odf").err.startswith("error: Corrupt: odf: BlockHash: the bytes of block")
    (root / "refs" / "head").write_text(str(maker.blocks[2].hash))
    assert kubothek("verify", "--odf", "odf", "--until-block", "2").code == 0
    (root / "refs" / "head").unlink()
    assert "RefMissing" in kubothek("verify", "--odf", "odf").err


def test_verify_of_valid_chain_notes_deviations_of_writer(kubothek: Kubothek, project: Path) -> None:
    (project / "odf").mkdir()
    maker = Maker(open_store(StoreConfig((project / "odf").as_uri())))
    order = ["city", *(name for name in SCHEMA.names if name != "city")]
    maker.start(pa.schema([SCHEMA.field(name) for name in order]))
    read = ReadStepCsv(ddl_schema=("city STRING", "population BIGINT"))
    maker.add(AddPushSource(source_name="p", read=read, merge=MergeStrategyLedger(primary_key=("city",))))
    maker.data(rows(0, 1, 1).select(order), 1)
    maker.data(rows(1, 1, 2, city=["city 0"]).select(order), 2)
    maker.add(AddData(prev_offset=1, new_watermark=later(2)), 3)
    answer = kubothek("verify", "--odf", "odf")
    assert (answer.code, "is sound" in answer.out) == (0, True)
    notes = answer.err.splitlines()
    assert all(line.startswith("note: block ") for line in notes)
    for code in ("ColumnOrder, SL-17", "DataKey, MS-02", "NoOpEvent, AD-10"):
        assert any(f"[{code}]" in line for line in notes), notes


@pytest.mark.parametrize(
    ("told", "arguments"),
    [
        ("give either DATASET or --odf URL", ()),
        ("give either DATASET or --odf URL", ("letters", "--odf", "odf")),
        ("has blocks, not versions", ("--odf", "odf", "--since", "3")),
        ("NotALedger", ("letters", "--until-block", "3")),
        ("VersionNotFound", ("letters", "--as-of", "9")),
        ("DatasetNotFound", ("nope",)),
    ],
)
def test_verify_with_invalid_arguments_is_refused(
    kubothek: Kubothek, store: Path, told: str, arguments: tuple[str, ...]
) -> None:
    answer = kubothek("verify", *arguments)
    assert answer.code in (1, 2)
    assert told in answer.err


VERIFICATION = """\
---
apiVersion: kubothek.io/v1alpha1
kind: Verification
metadata: {name: check}
spec: {datasetRef: {name: letters}}
"""


@pytest.mark.slow
def test_verification_manifest_runs_in_local_run(kubothek: Kubothek, project: Path) -> None:
    file = project / "store" / "sources" / "one.csv"
    file.parent.mkdir(parents=True)
    file.write_text("a\n1\n")
    write(project, STORE, dataset("letters"), commit("one", "letters", "sources/one.csv"))
    assert kubothek("run", "-f", "manifests").code == 0
    write(project, STORE, dataset("letters"), commit("one", "letters", "sources/one.csv"), VERIFICATION)
    assert "verification/check" in kubothek("plan", "-f", "manifests").out
    sound = kubothek("run", "-f", "manifests")
    assert sound.code == 0, sound
    assert "version 1 is sound: 1 file," in sound.out
    assert "Sound" not in kubothek("get", "-f", "manifests", "verifications").err
    (data,) = (project / "store").glob("letters/table/*.parquet")
    data.write_bytes(b"")
    again = VERIFICATION.replace("check", "again")
    write(project, STORE, dataset("letters"), commit("one", "letters", "sources/one.csv"), VERIFICATION, again)
    corrupt = kubothek("run", "-f", "manifests")
    assert corrupt.code != 0
    assert "FileHash" in corrupt.out + corrupt.err
