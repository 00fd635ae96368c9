"""Forecast for a SkippingIndex: which files a run would describe, without writes."""

from __future__ import annotations

from collections.abc import Mapping

from kubothek.api.files import Csv
from kubothek.api.skippingindex import SkippingIndex
from kubothek.cli.forecast_stores import wrong
from kubothek.controller.references import skipping_of
from kubothek.errors import LakeError
from kubothek.external.files import PlainFiles
from kubothek.external.matching import matched, versions_listed
from kubothek.external.state import read
from kubothek.jobs import translate
from kubothek.storage import Store
from kubothek.words import count


def files_outlook(index: SkippingIndex, stores: Mapping[str, Store | LakeError | None]) -> tuple[str, str]:
    """Return the verb of a plan, and why. ``stores``, by name: stores of files and of metadata, or their errors."""
    for name, store in stores.items():
        if not isinstance(store, Store):
            return "BLOCKED", f"needs {name}, {wrong(store)}"
    if index.spec.suspend:
        return "SUSPENDED", "spec.suspend is true"
    files, *others = (store for store in stores.values() if isinstance(store, Store))
    changed, why = _to_describe(index, files, others[0] if others else files)
    return "CHANGE" if changed else "KEEP", why


def _to_describe(index: SkippingIndex, files: Store, metadata: Store) -> tuple[bool, str]:
    """Return whether there is anything to do, and a text about it."""
    spec, name = index.spec, f"{index.namespace}.{index.name}"
    csv, columns = translate.csv_options(spec.csv or Csv()), translate.schema(spec.columns or ())
    wanted = PlainFiles(spec.location.prefix, spec.format, spec.location.glob, csv, columns)
    try:
        listed = wanted.listed(files)
        there = read(metadata, name).index
        total = count(listed.num_rows, "file")
        if there is None:
            return True, f"describes {total}"
        wish = translate.skipping(skipping_of(spec.skipping))
        found = there.wish.indices[: len(wish.indices)] if spec.skipping.auto else there.wish.indices
        if found != wish.indices or there.table.files != wanted or there.wish.encryption != wish.encryption:
            return True, f"rebuilds the metadata of {total}: the spec defines other metadata"
        described = matched(metadata, name, there, versions_listed(listed)).described
    except LakeError as error:
        return True, f"{error.reason}: {error}"
    if described < listed.num_rows:
        return True, f"describes {count(listed.num_rows - described, 'new file')} of {listed.num_rows:,}"
    return False, f"all of {total} are described"
