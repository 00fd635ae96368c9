"""Rules on the common columns of slices, and on all other columns (SL-11 … SL-17)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import pyarrow as pa

from kubothek.errors import InputError
from kubothek.odf.problems import Doubt, Problem, Severity
from kubothek.odf.spec.digest import LogicalHash
from kubothek.odf.validation.state import Vocabulary

_MILLISECONDS: Final = pa.timestamp("ms", "UTC")
_TYPES: Final = {
    "SL-12": (pa.int64(), pa.uint64()),
    "SL-13": (pa.int32(), pa.uint8()),
    "SL-14": (_MILLISECONDS,),
    "SL-15": (_MILLISECONDS, pa.date32()),
}
"""Of offset, op, system time and event time: the type of the reference, then others that the specification allows."""


@lru_cache(maxsize=256)
def column_problems(schema: pa.Schema, vocabulary: Vocabulary) -> tuple[Problem, ...]:
    """Return the problems of the columns of slices; cached, as nearly all slices of a chain have the same."""
    return tuple(_problems(schema, vocabulary))


def _problems(schema: pa.Schema, vocabulary: Vocabulary) -> Iterator[Problem]:
    for name, count in Counter(schema.names).items():
        if count > 1:
            yield Problem("DataColumns", "SL-11", f"the name matches {count} columns", column=name)
    for (rule, types), name in zip(_TYPES.items(), vocabulary.names, strict=True):
        if name not in schema.names:
            message = "the common column is missing"
            yield Problem("DataColumns", "SL-11", message, column=name, depends=Doubt.VOCABULARY)
        elif schema.names.count(name) == 1 and (kind := schema.field(name).type) not in types:
            wanted = " or ".join(map(str, types))
            message = f"the common column is of type {kind}, not {wanted}"
            yield Problem("DataColumns", rule, message, column=name, depends=Doubt.VOCABULARY)
    if schema.names[:4] != list(vocabulary.names):
        message = f"the first columns are {', '.join(schema.names[:4])}, not {', '.join(vocabulary.names)}"
        yield Problem("ColumnOrder", "SL-17", message, Severity.REFUSED, depends=Doubt.VOCABULARY)
    for field in schema:
        if pa.types.is_timestamp(field.type) and field.type.tz is None:
            yield Problem("DataTimestamp", "SL-16", "timestamps without a time zone are not allowed", column=field.name)
    try:
        LogicalHash(schema)
    except InputError as error:
        yield Problem("DataColumns", "HS-02", str(error))
