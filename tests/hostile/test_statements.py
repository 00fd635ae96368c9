"""Hostile SQL, given to a Query as its statement and to a Commit as its filter."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubothek.api.kinds import parse
from tests.hostile.conftest import CORPUS, Site, cases

pytestmark = pytest.mark.slow  # hundreds of statements, through every door

PARENTHESES = f"SELECT {'(' * 20_000}1{')' * 20_000}"


def text(case: dict[str, Any], site: Site) -> str:
    return str(case["sql"]).replace("{dir}", str(site.outside)).replace("{parentheses}", PARENTHESES)


def limits(case: dict[str, Any]) -> dict[str, Any]:
    """A short time for what runs until it is stopped; what is refused may take longer on a busy machine."""
    return {"time_limit_seconds": 0.5} if "longer than" in case["refusal"] else {}


def test_hostile_corpus_has_at_least_50_distinct_statements() -> None:
    assert sum(map(len, CORPUS.values())) >= 50
    assert all(len({case["name"] for case in cases}) == len(cases) for cases in CORPUS.values())


@cases("statements")
def test_hostile_statement_as_query_is_refused_by_name(site: Site, case: dict[str, Any]) -> None:
    result = site.query(text(case, site), **limits(case))
    assert result.reason == "QueryInvalid", result
    assert re.search(case["refusal"], result.message), result.message


@cases("statements", every=9)
def test_hostile_query_into_dataset_is_refused_and_dataset_is_unchanged(site: Site, case: dict[str, Any]) -> None:
    dataset = {"uuid": "flights", "claim": {"owner": "cluster/default/flights", "incarnation": "uid-1"}}
    dataset |= {"table": {"partition_on": ["month"]}}
    becomes = {"store": site.store, "dataset": dataset, "commit_id": "query:ns/q"}
    assert site.query(text(case, site), location=None, becomes=becomes, **limits(case)).reason == "QueryInvalid"


@cases("statements")
def test_hostile_statement_as_commit_filter_is_refused(site: Site, case: dict[str, Any]) -> None:
    result = site.commit(operation="Delete", where=text(case, site), row_level=True)
    assert result.reason == "FilterInvalid", result


@cases("statements", every=9)
def test_hostile_statement_injected_into_commit_filter_is_refused(site: Site, case: dict[str, Any]) -> None:
    """Behind a condition that is one, as SQL is injected."""
    where = f"month = 1) OR 1 = 1; {text(case, site)}"
    assert site.commit(operation="Delete", where=where, row_level=True).reason == "FilterInvalid"


@cases("statements", every=9)
def test_hostile_statement_as_update_value_is_refused(site: Site, case: dict[str, Any]) -> None:
    update = {"operation": "Update", "where": "month = 1", "row_level": True}
    assert site.commit(**update, new_values={"carrier": text(case, site)}).reason == "FilterInvalid"


@cases("urls")
def test_url_as_table_in_query_is_refused(site: Site, case: dict[str, Any]) -> None:
    url = str(case.get("url") or case["redirect"]).replace("'", "''")
    result = site.query(f"SELECT * FROM '{url}'")
    assert result.reason == "QueryInvalid"
    assert "no dataset" in result.message


def test_query_above_length_limit_is_refused() -> None:
    manifest = {
        "apiVersion": "kubothek.io/v1alpha1",
        "kind": "Query",
        "metadata": {"name": "q"},
        "spec": {
            "sql": PARENTHESES * 2,
            "storeRef": {"name": "lake"},
            "result": {"location": {"path": "reports"}},
        },
    }
    with pytest.raises(ValueError, match=r"spec\.sql"):
        parse(manifest)
