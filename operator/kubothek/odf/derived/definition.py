"""A transformation as stored in a chain, validated against its inputs, and compared with another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from kubothek.errors import InputError
from kubothek.odf.derived.inputs import Input, Inputs, all_located, resolver
from kubothek.odf.derived.running import sql_of
from kubothek.odf.spec.events import SetTransform
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.transform import ENGINE_VERSION, keeps_state, validate
from kubothek.odf.validation.snapshots import resolved
from kubothek.odf.validation.state import Vocabulary


def stored_transform(
    event: SetTransform, inputs: Inputs, vocabulary: Vocabulary, *, itself: DatasetId, foreign: bool = False
) -> SetTransform:
    """Return the event with inputs by id, each with an alias, ``queries``, and the engine's version if it has none
    (EN-11).

    ``vocabulary``  of the derivative dataset, and ``itself``, its id, which cannot be an input
    ``foreign``     an engine of another party is to run it: the query is not validated, and no version is set

    Raises InputError, which names every input that does not exist; TransformInvalid; EventInvalid.
    """
    found = resolved_transform(event, inputs)
    if own := [each.alias for each in found.inputs if DatasetId.parse(each.dataset_ref) == itself]:
        raise InputError(f"input {own[0]!r} is the dataset that the transformation is to make: name another one")
    sql = sql_of(found.transform)
    if foreign:
        all_located(inputs, found.inputs)
        return found
    stored = replace(found, transform=replace(sql, version=sql.version or ENGINE_VERSION))
    columns(stored, all_located(inputs, stored.inputs), vocabulary)
    return stored


def resolved_transform(event: SetTransform, inputs: Inputs) -> SetTransform:
    """Return the event with inputs by id and ``queries``. Raises InputError, EventInvalid."""
    (found,) = resolved((event,), resolver(inputs))
    assert isinstance(found, SetTransform), "events stay what they are"
    return found


def columns(event: SetTransform, sources: Sequence[Input], vocabulary: Vocabulary) -> pa.Schema | None:
    """Return the output columns, ``[event_time, data…]``; None if an input has none yet. Raises TransformInvalid."""
    known = _known(event, sources)
    return None if known is None else validate(sql_of(event.transform), *known, vocabulary)


def remembers(event: SetTransform, sources: Sequence[Input], vocabulary: Vocabulary) -> bool:
    """Return whether the transformation keeps a state; False if an input has no columns yet."""
    known = _known(event, sources)
    return known is not None and keeps_state(sql_of(event.transform), *known, vocabulary)


def _known(event: SetTransform, sources: Sequence[Input]) -> tuple[dict[str, pa.Schema], dict[str, Vocabulary]] | None:
    """Return columns and vocabularies of the inputs by name; None if an input has no columns yet."""
    names = [each.alias or each.dataset_ref for each in event.inputs]
    schemas = {name: source.chain.state.schema for name, source in zip(names, sources, strict=True)}
    known = {name: schema for name, schema in schemas.items() if schema is not None}
    if len(known) < len(schemas):
        return None
    return known, {name: source.chain.state.vocabulary for name, source in zip(names, sources, strict=True)}


def is_same(wanted: SetTransform, in_force: SetTransform | None) -> bool:
    """Return whether a transformation equals the one in force; without a version it matches any version."""
    if in_force is None:
        return False
    sql, stored = sql_of(wanted.transform), sql_of(in_force.transform)
    return replace(wanted, transform=replace(sql, version=sql.version or stored.version)) == in_force
