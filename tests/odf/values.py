"""Events of every shape, drawn from the classes themselves."""

from __future__ import annotations

import json
import os
from functools import cache, partial
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from kubothek.odf.spec.data_schema import DataTypeList, DataTypeMap, DataTypeOption, DataTypeStruct, ExtraAttributes
from kubothek.odf.spec.events import MetadataEvent
from kubothek.odf.spec.fields import Choice, Simple, Table, Type, Union, Vector, fields_of, union_of
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.odf.spec.timestamps import Timestamp

SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))


def examples(usual: int, soak: int) -> settings:
    """So many always the same examples; ``make soak`` tries more, new ones each time."""
    return settings(
        max_examples=soak if SOAK else usual,
        database=None,
        deadline=None,
        derandomize=not SOAK,
        suppress_health_check=list(HealthCheck),
        phases=tuple(Phase) if SOAK else (Phase.generate,),
    )


_FIRST, _LAST = Timestamp.parse("0001-01-01T00:00:00Z").nanoseconds, Timestamp.parse("9999-12-31T23:59:59Z").nanoseconds
_DIGEST = st.binary(min_size=32, max_size=32)
_SIMPLE: dict[Simple, st.SearchStrategy[Any]] = {
    Simple.TEXT: st.text(max_size=12)
    | st.sampled_from(["off", "1e3", "0x1f", "~", "a: b", "two\nlines\n", "2024-01-01"]),
    Simple.NUMBER: st.integers(0, 2**64 - 1) | st.just(0),
    Simple.INT32: st.integers(-(2**31), 2**31 - 1) | st.just(0),
    Simple.UINT32: st.integers(0, 2**32 - 1) | st.just(0),
    Simple.FLAG: st.booleans(),
    Simple.BYTES: st.binary(max_size=20),
    Simple.HASH: st.builds(Multihash, st.sampled_from([Codec.SHA3_256, Codec.ARROW0_SHA3_256]), _DIGEST),
    Simple.ID: st.builds(DatasetId, _DIGEST),
    Simple.MOMENT: st.builds(Timestamp, st.integers(_FIRST, _LAST)),
}


def events() -> st.SearchStrategy[MetadataEvent]:
    """Any event."""
    return values(union_of(MetadataEvent))


_ATTRIBUTES = st.dictionaries(
    st.sampled_from(["kamu.dev/archetype", "opendatafabric.org/type", "x.org/e"]),
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.just({"kind": "Did"}), max_size=2),
)


@cache
def values(kind: Type) -> st.SearchStrategy[Any]:
    """Any value of a type."""
    if isinstance(kind, Union):
        simple = [member for member in kind.members if not _nested(member)]
        nested = [_later(Table(member)) for member in kind.members if _nested(member)]
        return st.one_of([values(Table(member)) for member in simple] + nested)
    if kind == Table(ExtraAttributes):
        compact = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
        return st.builds(ExtraAttributes, entries=_ATTRIBUTES.map(compact))
    if isinstance(kind, Table):
        fields = {field.name: values(field.type) for field in fields_of(kind.record)}
        given = {
            field.name: st.none() | fields[field.name] if field.optional else fields[field.name]
            for field in fields_of(kind.record)
        }
        return st.builds(kind.record, **given)
    if isinstance(kind, Vector):
        return st.lists(values(kind.item), max_size=3).map(tuple)
    return st.sampled_from(kind.values) if isinstance(kind, Choice) else _SIMPLE[kind]


def _later(kind: Table) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: values(kind))


def _nested(member: type) -> bool:
    return member in (DataTypeList, DataTypeMap, DataTypeOption, DataTypeStruct)
