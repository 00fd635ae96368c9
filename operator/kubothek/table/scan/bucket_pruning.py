"""Pruning by bucket: files of the table's current bucketing whose bucket a filter excludes are dropped."""

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
"""Maximum number of combinations of column values that are hashed for one filter."""


def by_bucket(may: Mask, head: Head, schema: pa.Schema, terms: Sequence[Term]) -> Mask:
    """Return the files of ``may`` (one flag a file, in head order) that may hold rows for which all terms are TRUE.

    The terms are bound. Files without a bucket, or of an older layout, stay.
    """
    try:
        bucketing = Bucketing.of(Layout.of(head), schema)
    except LayoutInvalid:  # writers report it; reading is still possible
        return may
    if bucketing is None or (wanted := _wanted(bucketing, terms)) is None:
        return may
    found = bucketing.read(pa.array(compress(head.partitions, may.tobytes()), pa.string()))
    keep = pc.or_(found.is_null(), pc.is_in(found, value_set=pa.array(sorted(wanted), pa.int32())))
    left = may.copy()
    left[may] = np.asarray(keep)
    return left


def _wanted(bucketing: Bucketing, terms: Sequence[Term]) -> set[int] | None:
    """Return the possible buckets, if the terms fix the values of all bucket columns and these are few; else None."""
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
