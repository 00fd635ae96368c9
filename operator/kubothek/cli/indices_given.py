"""``--index``: a skipping index on the command line, ``BloomFilter:tailnum,ndv=5000``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kubothek.table.skipping.model import IndexDefinition

_PARAMS = ("ndv", "fpp", "length")


class SkippingIndexOption(click.ParamType["IndexDefinition"]):
    """``TYPE:COLUMN``, for a GeometryBox of two columns ``TYPE:X+Y``, then ``,name=value`` for its parameters."""

    name = "index"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> IndexDefinition:
        """The definition."""
        from kubothek.errors import SkippingInvalid
        from kubothek.table.skipping.indexes import index_type
        from kubothek.table.skipping.model import IndexDefinition

        kind, found, rest = str(value).partition(":")
        columns, *pairs = rest.split(",")
        given = dict(pair.partition("=")[::2] for pair in pairs)
        unknown = [name for name, text in given.items() if name not in (*_PARAMS, "key") or not text]
        if not found or not columns:
            self.fail(f"{value!r}: write TYPE:COLUMN, such as MinMax:delay", param, ctx)
        if unknown:
            self.fail(
                f"{value!r}: unknown parameter {unknown[0]!r}; known: {', '.join((*_PARAMS, 'key'))}",
                param,
                ctx,
            )
        try:
            name = index_type(kind).name
        except SkippingInvalid as error:
            self.fail(str(error), param, ctx)
        params = {name: text for name, text in given.items() if name != "key"}
        return IndexDefinition(name, tuple(columns.split("+")), params, given.get("key"))
