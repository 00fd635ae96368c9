"""The index types of this directory; importing the module registers them."""

from __future__ import annotations

from typing import Final

from kubothek.table.skipping import indexes
from kubothek.table.skipping.extensions.boxes import GeometryBox
from kubothek.table.skipping.extensions.parts import Prefix, Suffix
from kubothek.table.skipping.extensions.tokens import TokenList
from kubothek.table.skipping.prune import clauses

OWN_TYPES: Final = (Prefix(), Suffix(), TokenList(), GeometryBox())
for _each in OWN_TYPES:
    indexes.register(_each)
    clauses.register(_each.name, _each.may_match)
