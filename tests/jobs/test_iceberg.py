"""The export of Iceberg metadata by jobs: the manifest decides, inspections see a lag, healing makes it good."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kubothek.api.jobs import DatasetState, ExitCode, IcebergState
from kubothek.table.log.model import keys
from tests.jobs.conftest import Here

METADATA = keys.iceberg_metadata("flights")
EXPORT = ("the Iceberg export",)


def job(job: dict[str, Any], exports: str) -> dict[str, Any]:
    """The job of a Dataset with this export."""
    if "datasets" in job:
        return {**job, "datasets": [{**each, "iceberg": exports} for each in job["datasets"]]}
    return {**job, "dataset": {**job["dataset"], "iceberg": exports}}


def commit(here: Here, number: int, exports: str = "Omit", **options: Any) -> DatasetState:
    here.put(f"{number}.csv", f"n\n{number}\n")
    result, code = here.run(job(here.commit_job(f"{number}.csv", commit_id=f"c{number}", **options), exports))
    assert code == ExitCode.DONE, result
    assert result.dataset is not None
    return result.dataset


def inspected(here: Here, exports: str = "Omit") -> DatasetState:
    result, code = here.run(job(here.inspect_job(), exports))
    assert code == ExitCode.DONE, result
    return result.datasets[0]


def healed(here: Here, exports: str = "Omit") -> tuple[tuple[str, ...], DatasetState]:
    result, code = here.run(job(here.job("heal"), exports))
    assert code == ExitCode.DONE, result
    assert result.heal is not None
    assert result.dataset is not None
    return result.heal.repaired, result.dataset


def current(here: Here, version: int) -> IcebergState:
    location = f"{here.root.as_uri()}/{METADATA}v{version}.metadata.json"
    return IcebergState(version=version, lag=0, metadata_location=location)


def avro_files(here: Here) -> dict[str, bytes]:
    return {info.key: here.store.get(info.key) for info in here.store.list(METADATA) if info.key.endswith(".avro")}


def test_commit_job_takes_the_setting_over_and_exports(here: Here) -> None:
    assert commit(here, 0, "Off").iceberg is None
    assert commit(here, 1).iceberg == current(here, 2)
    assert inspected(here).iceberg == current(here, 2)
    assert inspected(here).ailments == ()
    assert commit(here, 2, "Off").iceberg is None


def test_heal_job_takes_the_setting_over_without_a_commit(here: Here) -> None:
    commit(here, 0, "Off")
    assert inspected(here).ailments == EXPORT
    repaired, state = healed(here)
    assert (repaired, state.iceberg) == (EXPORT, current(here, 2))
    assert inspected(here).ailments == ()
    assert healed(here)[0] == ()
    assert inspected(here, "Off").ailments == EXPORT
    assert healed(here, "Off")[1].iceberg is None
    assert inspected(here, "Off").ailments == ()


def test_inspection_reports_lag_and_heal_job_exports(here: Here) -> None:
    commit(here, 0)
    hint = here.store.get(f"{METADATA}version-hint.text")
    commit(here, 1)
    here.store.put(f"{METADATA}version-hint.text", hint)
    state = inspected(here)
    assert state.iceberg == current(here, 1).model_copy(update={"lag": 1})
    assert state.ailments == EXPORT
    assert healed(here)[1].iceberg == current(here, 2)
    here.store.delete([f"{METADATA}v2.metadata.json"])
    assert inspected(here).ailments == EXPORT
    assert healed(here)[0] == EXPORT


def test_heal_job_rewrites_damaged_files_that_have_their_size(here: Here) -> None:
    commit(here, 0)
    commit(here, 1)
    sound = avro_files(here)
    leftover = f"{METADATA}{'0' * 32}-m.avro"
    for key in sound:
        here.store.put(key, b"\0" * len(sound[key]))
        here.store.put(leftover, b"of no export")
        assert healed(here)[0] == EXPORT, key
        assert avro_files(here) == sound
    assert healed(here)[0] == ()


def test_columns_that_iceberg_lacks_are_a_problem_of_the_state(here: Here) -> None:
    columns = [{"name": "n", "type": "uint64"}]
    state = commit(here, 0, "Refuse", columns=columns)
    assert state.iceberg is not None
    assert (state.version, state.iceberg.version, state.iceberg.lag) == (1, 0, 1)
    assert "column 'n' (uint64)" in (state.iceberg.problem or "")
    assert inspected(here, "Refuse").iceberg == state.iceberg
    repaired, unhealed = healed(here, "Refuse")
    assert (repaired, unhealed.iceberg) == ((), state.iceberg)
    assert healed(here)[1].iceberg == current(here, 2)


def test_heal_job_without_pyiceberg_names_the_extra(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kubothek.table.iceberg.export", raising=False)
    for name in [name for name in sys.modules if name.startswith(("kubothek.table.iceberg.", "pyiceberg"))]:
        if name not in ("kubothek.table.iceberg.locations", "kubothek.table.iceberg.state"):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "kubothek.table.iceberg.export", None)
    state = commit(here, 0)
    assert state.iceberg is not None
    assert (state.iceberg.lag, state.iceberg.problem) == (1, None), "another writer may have it"
    assert (healed(here)[1].iceberg or state.iceberg).problem == (
        "MissingExtra: pyiceberg is not installed; pip install 'kubothek[iceberg]', or use an image that has it"
    )
