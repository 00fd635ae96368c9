"""The index types of this directory: importing it makes them known."""

from __future__ import annotations

from typing import Final

from kubothek.lake.skipping import indexes
from kubothek.lake.skipping.own.boxes import GeometryBox
from kubothek.lake.skipping.own.parts import Prefix, Suffix
from kubothek.lake.skipping.own.tokens import TokenList
from kubothek.lake.skipping.planning import clauses

OWN_TYPES: Final = (Prefix(), Suffix(), TokenList(), GeometryBox())
for _each in OWN_TYPES:
    indexes.register(_each)
    clauses.register(_each.name, _each.may_match)
