"""Assignment of rules to kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kubothek.api.meta import Resource
from kubothek.controller import pod_templates
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding
from kubothek.controller.validation import claims, compatibility, cycles, layout, quota, references, schedules, sizes
from kubothek.controller.validation.resource_set import Beside

Rule = Callable[[Any, Lookup], Iterator[Finding]]

_ALL: Final[tuple[Rule, ...]] = (schedules.timeless, references.dangling)
_OF_KIND: Final[Mapping[str, tuple[Rule, ...]]] = {
    "Engine": (pod_templates.denied, pod_templates.without_effect, sizes.beyond_limits, quota.never_fits),
    "Cube": (claims.names_of_members,),
    "Dataset": (
        claims.same_dataset,
        claims.name_of_member,
        cycles.of_inputs,
        compatibility.dataset_and_inputs,
        layout.other_partitions,
        layout.unknown_tags,
    ),
    "Commit": (cycles.of_commits, compatibility.commit_and_dataset, sizes.run_beyond_limits),
    "Compaction": (sizes.run_beyond_limits,),
    "Query": (cycles.of_queries, compatibility.query_and_dataset, sizes.run_beyond_limits),
    "Verification": (sizes.run_beyond_limits,),
    "Sync": (compatibility.sync_and_dataset,),
}


def findings(resource: Resource, there: Lookup) -> Iterator[Finding]:
    """Yield every finding about a valid resource among the existing ones."""
    beside = Beside(resource, there)
    for rule in (*_OF_KIND.get(resource.kind, ()), *_ALL):
        yield from rule(resource, beside)


def new_findings(resource: Resource, old: Resource | None, there: Lookup) -> Iterator[Finding]:
    """Yield the findings about an edit. Only new ones are denied: an edit such as a suspension must stay possible."""
    known = set(findings(old, there)) if old is not None else set[Finding]()
    for found in findings(resource, there):
        yield Finding(found.reason, found.path, found.message, denies=found.denies and found not in known)
