"""The models that job specs and results share with the kinds: their JSON is API for images of other versions."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from kubothek.api import observed
from kubothek.api.files import Csv
from kubothek.api.jobs import results
from kubothek.api.jobs.parts import SourceSpec
from kubothek.api.table import Index
from kubothek.api.values import Column

FIELDS: dict[type[BaseModel], str] = {
    Column: "name type nullable",
    Csv: "delimiter quote header null_values",
    Index: "column kind",
    results.IndexState: "column kind state rows",
    results.Bin: "below files",
    results.HealthState: "version small_files small_percent worst_partition_small_files sizes versions history_files "
    "history_bytes garbage_files garbage_bytes",
    results.LedgerSource: "name kind value",
    results.MemberOutcome: "name version rows files bytes",
    results.QueryRead: "dataset version files considered skipped filters",
    results.KindCount: "kind objects bytes",
    results.FindingState: "code message block block_number object column row",
}


@pytest.mark.parametrize("model", FIELDS, ids=lambda model: model.__name__)
def test_shared_model_has_exactly_known_fields(model: type[BaseModel]) -> None:
    """An image of another version refuses a new field: add it to a job spec or a result with the same care."""
    assert " ".join(model.model_fields) == FIELDS[model]


def test_job_result_refuses_unknown_field_that_status_ignores() -> None:
    told = {"kind": "data", "objects": 3, "news": 1}
    assert observed.KindCount.model_validate(told).objects == 3
    for model in FIELDS:
        with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
            model.model_validate({"news": 1})
    with pytest.raises(ValidationError, match=r"collected\.0\.news"):
        results.CollectOutcome.model_validate({"after": "a", "collected": [told]})


def test_job_spec_serializes_kind_models_with_python_names() -> None:
    spec = SourceSpec(format="CSV", csv=Csv(null_values=("-",)), columns=(Column(name="a", type="int64"),))
    text = spec.model_dump_json()
    assert '"null_values":["-"]' in text
    assert SourceSpec.model_validate_json(text) == spec
