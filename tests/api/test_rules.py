"""The Python validators, on the table that the API server's are tested with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubothek.api.crds import crd
from kubothek.api.kinds import KINDS, InvalidResource, check_edit, parse
from tests.api.manifests import CASES, EDITS, Case, Edit


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_invalid_manifest_is_refused_with_path_and_remedy(case: Case) -> None:
    if case.refusal is None:
        assert parse(case.manifest()).kind == case.kind
        return
    with pytest.raises(InvalidResource) as refused:
        parse(case.manifest())
    assert case.refusal in str(refused.value)


@pytest.mark.parametrize("case", [case for case in CASES if case.cluster_only], ids=lambda case: case.name)
def test_cluster_rules_do_not_apply_locally(case: Case) -> None:
    assert parse(case.manifest(), local=True).kind == case.kind


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_edit_of_immutable_field_is_refused(edit: Edit) -> None:
    problems = check_edit(parse(edit.manifest(edit.old)), parse(edit.manifest(edit.new)))
    if edit.refusal is None:
        assert problems == ()
    else:
        assert edit.refusal in "; ".join(map(str, problems))


def test_validation_rules_are_all_covered_by_cases() -> None:
    broken = {problem for case in CASES if case.refusal for problem in _problems(case)}
    broken |= {
        problem.message
        for edit in EDITS
        for problem in check_edit(parse(edit.manifest(edit.old)), parse(edit.manifest(edit.new)))
    }
    stated = {message for kind in KINDS.values() for message in _messages(crd(kind))}
    assert len(stated) > 20
    assert stated <= broken


def _messages(schema: object) -> Iterator[str]:
    """The messages of all CEL rules in a CRD."""
    if isinstance(schema, dict):
        yield from (rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
        for value in schema.values():
            yield from _messages(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _messages(value)


def _problems(case: Case) -> set[str]:
    with pytest.raises(InvalidResource) as refused:
        parse(case.manifest())
    return {problem.message for problem in refused.value.problems}
