"""Which files a filter leaves because of their bucket: all of another bucket of the table's present bucketing go."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, product
from math import prod
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import LayoutInvalid
from kubothek.table.bucketing import Bucketing
from kubothek.table.expressions import Op, Term
from kubothek.table.layout import Layout
from kubothek.table.log.model.head import Head
from kubothek.table.path_columns import Mask

_MOST_COMBINATIONS: Final = 256
"""Values of the columns that are hashed for one filter at most."""


def by_bucket(may: Mask, head: Head, schema: pa.Schema, terms: Sequence[Term]) -> Mask:
    """The files of ``may`` (one flag a file, in head order) that may hold rows for which all these terms are TRUE.

    The terms are bound. Files without a bucket, or with one of an older layout, stay.
    """
    try:
        bucketing = Bucketing.of(Layout.of(head), schema)
    except LayoutInvalid:  # told to whoever writes; it is no reason not to read
        return may
    if bucketing is None or (wanted := _wanted(bucketing, terms)) is None:
        return may
    found = bucketing.read(pa.array(compress(head.partitions, may.tobytes()), pa.string()))
    keep = pc.or_(found.is_null(), pc.is_in(found, value_set=pa.array(sorted(wanted), pa.int32())))
    left = may.copy()
    left[may] = np.asarray(keep)
    return left


def _wanted(bucketing: Bucketing, terms: Sequence[Term]) -> set[int] | None:
    """Return the buckets of the rows, if the terms say which values they have in each of the columns."""
    values = [_values(name, terms) for name, _ in bucketing.columns]
    if any(each is None for each in values) or prod(len(each or ()) for each in values) > _MOST_COMBINATIONS:
        return None
    names = [name for name, _ in bucketing.columns]
    rows = product(*(each or () for each in values))
    return {bucketing.bucket_of(dict(zip(names, row, strict=True))) for row in rows}


def _values(column: str, terms: Sequence[Term]) -> tuple[Any, ...] | None:
    for term in terms:
        if term.column == column and term.op is Op.IN:
            return tuple(term.value)
        if term.column == column and term.op in (Op.EQ, Op.IS_NULL):
            return (term.value,)
    return None
