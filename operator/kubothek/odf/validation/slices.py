"""Verification of one slice against its event (SL, OP, DAT, TIM): streaming, whatever its size, with no Python per row.

A slice is checked on its own, so many can be checked in parallel, anywhere; the ``Facts`` that are returned have what
concerns its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import InputError, ObjectNotFound
from kubothek.odf.chain import ADVICE
from kubothek.odf.problems import Doubt, Problem, Severity, judged
from kubothek.odf.spec.digest import LogicalHash
from kubothek.odf.spec.digest_values import is_listed
from kubothek.odf.spec.events import DataSlice
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.odf.spec.object_links import LinkPath
from kubothek.odf.spec.sources import MergeStrategy
from kubothek.odf.validation.columns import column_problems
from kubothek.odf.validation.link_checks import LinkChecks, check_linked
from kubothek.odf.validation.row_checks import RowChecks
from kubothek.odf.validation.slice_columns import SliceColumns
from kubothek.odf.validation.state import Vocabulary
from kubothek.storage import Store
from kubothek.storage.hashed import Hashed, hashed, hashed_each
from kubothek.table.untrusted_parquet import UNREADABLE, open_parquet_file

_ROWS: Final = 1 << 16
_LAST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a chain says of one slice; plain data that is sent to other processes.

    ``merges``  the merge strategies of the sources that can have written it; none if no source is known
    ``links``   columns, and fields within them, that link to large objects
    ``doubts``  what of this is in doubt, because of the event in the block ``unknown``
    """

    data: DataSlice
    vocabulary: Vocabulary
    schema: pa.Schema | None
    block: Multihash
    number: int
    merges: tuple[MergeStrategy, ...] = ()
    links: tuple[LinkPath, ...] = ()
    doubts: Doubt = Doubt.NONE
    unknown: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The result of a check: ``first_time`` and ``last_time`` are system times in milliseconds since 1970.

    ``retracts``  whether there are retractions or corrections
    ``links``     the linked objects
    """

    problems: tuple[Problem, ...] = ()
    rows: int = 0
    bytes: int = 0
    first_time: int | None = None
    last_time: int | None = None
    retracts: bool = False
    links: frozenset[Multihash] = frozenset()


def check_slices(
    store: Store,
    layout: Layout,
    slices: Sequence[Expected],
    columns: Executor | None = None,
    *,
    rows: bool = True,
    records_suffice: bool = False,
) -> list[Facts]:
    """Check some slices, and return the results in their order; without ``rows`` only the bytes of their files.

    ``columns``          reads and hashes columns in parallel
    ``records_suffice``  other bytes of the same records are only a note (VE-04)

    Raises StoreError, and OSError if there is no disk space for a large slice.
    """
    possible = [each for each in slices if each.data.offset_interval.end <= _LAST]
    facts = list[Facts]()
    with closing(hashed_each(store, (layout.data(each.data.physical_hash) for each in possible))) as objects:
        for expected in slices:
            if (end := expected.data.offset_interval.end) > _LAST:
                problem = Problem("Offsets", "SL-12", f"offset {end} is more than Parquet's column can hold")
                one = Facts(problems=(problem,))
            else:
                one = _check(next(objects), layout, expected, columns, rows, records_suffice)
                if one.links:
                    links = sorted(one.links, key=str)
                    one = replace(one, problems=(*one.problems, *check_linked(store, layout, links)), links=frozenset())
            facts.append(_placed(one, expected))
    return facts


def _check(
    found: Hashed | ObjectNotFound,
    layout: Layout,
    expected: Expected,
    columns: Executor | None,
    rows: bool,
    records_suffice: bool,
) -> Facts:
    key, claimed = layout.data(expected.data.physical_hash), expected.data
    if isinstance(found, ObjectNotFound):
        return Facts(problems=(Problem("DataMissing", "CH-02", f"there is no {key}; {ADVICE}"),))
    facts = Facts()
    problem = _object_problem(key, "DS-01", claimed.physical_hash, claimed.size, found)
    if problem and not records_suffice:
        facts = Facts(problems=(problem,))
    elif problem or rows:
        facts = _check_rows(found.file, expected, columns)
        if problem:
            sound = all(each.severity is not Severity.ERROR for each in facts.problems)
            problem = replace(problem, severity=Severity.NOTE) if sound else problem
            facts = replace(facts, problems=(problem, *facts.problems))
    return replace(facts, bytes=found.size)


def _placed(facts: Facts, expected: Expected) -> Facts:
    name = f"slice {expected.data.physical_hash.short}"
    placed = (replace(each, block=expected.block, number=expected.number, object=name) for each in facts.problems)
    return replace(facts, problems=tuple(placed))


def check_checkpoint(store: Store, layout: Layout, physical: Multihash, size: int) -> Problem | None:
    """Return the problem of a checkpoint that differs from its event."""
    key = layout.checkpoint(physical)
    try:
        with hashed(store, key) as found:
            return _object_problem(key, "DS-02", physical, size, found)
    except ObjectNotFound:
        return Problem("CheckpointMissing", "CH-02", f"there is no {key}; {ADVICE}")


def _object_problem(key: str, rule: str, named: Multihash, size: int, found: Hashed) -> Problem | None:
    kind = "Checkpoint" if rule == "DS-02" else "Data"
    if Multihash(Codec.SHA3_256, found.digest) != named:
        told = f"{found.size} of them, {size} were committed"
        return Problem(
            f"{kind}Physical", "HS-01", f"{key}: its bytes are not those that the hash names ({told}); {ADVICE}"
        )
    if found.size != size:
        return Problem(f"{kind}Size", rule, f"{key} has {found.size} bytes, its event says {size}")
    return None


def _check_rows(file: Any, expected: Expected, columns: Executor | None) -> Facts:
    try:
        slice_columns = SliceColumns(file)
        schema = slice_columns.schema
        found = [*column_problems(schema, expected.vocabulary), *_schema_problems(schema, expected.schema)]
    except UNREADABLE as error:
        return Facts(problems=(_unreadable(f"the file is no Parquet that can be read: {error}"),))
    wrong = [judged(each, expected.doubts, expected.unknown) for each in found]
    if any(problem.severity is Severity.ERROR for problem in wrong):
        return Facts(problems=tuple(wrong))
    interval = expected.data.offset_interval
    is_named = not any(Doubt.VOCABULARY in each.depends and each.severity is Severity.ERROR for each in found)
    merges = () if Doubt.SOURCES in expected.doubts else expected.merges
    checks = RowChecks(expected.vocabulary, interval.start, merges) if is_named else None
    links = LinkChecks([path for path in expected.links if path[0] in schema.names], interval.start)
    hasher = LogicalHash(schema, columns)
    try:
        for batch in slice_columns.batches(threads=columns is not None):
            if checks is not None:
                checks.update(batch)
            links.update(batch)
            hasher.update(batch)
    except (*UNREADABLE, InputError) as error:
        unreadable = [*_unreadable_columns(slice_columns, interval.start)]
        return Facts(problems=(*wrong, *(unreadable or [_unreadable(f"its rows cannot be read: {error}")])))
    wrong += [*(() if checks is None else checks.finish()), *links.finish()]
    if slice_columns.rows != (rows := interval.end - interval.start + 1):
        wrong.append(Problem("DataRows", "DAT-04", f"it holds {slice_columns.rows} records, its event says {rows}"))
    if (logical := hasher.finish()) != expected.data.logical_hash:
        message = f"its records hash to {logical}, committed were {expected.data.logical_hash}"
        wrong.append(Problem("DataLogical", "HS-02", message))
    return Facts(
        problems=tuple(wrong),
        rows=slice_columns.rows,
        first_time=None if checks is None else checks.first_time,
        last_time=None if checks is None else checks.last_time,
        retracts=checks is not None and checks.retracts,
        links=frozenset(links.links),
    )


def _unreadable_columns(columns: SliceColumns, start: int) -> Iterator[Problem]:
    """Yield the columns that cannot be read or hashed, each on its own; ``start`` is the offset of the first record."""
    for number, field in enumerate(columns.schema):
        rows, hasher = 0, LogicalHash(pa.schema([field]))
        try:
            for batch in columns.batches([number]):
                hasher.update(batch)
                rows += batch.num_rows
        except (*UNREADABLE, InputError) as error:
            yield _unreadable(f"the rows from {start + rows} on cannot be read: {error}", field.name)


def _unreadable(message: str, column: str | None = None) -> Problem:
    return Problem("DataParquet", "SL-10", message, column=column)


def read_batches(
    store: Store, layout: Layout, expected: Expected, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a slice that was found sound; of all columns, or of these. Raises StoreError."""
    with hashed(store, layout.data(expected.data.physical_hash)) as found:
        yield from open_parquet_file(found.file, arrow_extensions_enabled=False).iter_batches(_ROWS, columns=columns)


def _schema_problems(found: pa.Schema, committed: pa.Schema | None) -> Iterator[Problem]:
    if committed is None:
        return  # the rules of the chain report it
    if found.names != committed.names:
        message = f"its columns are {', '.join(found.names)}; SetDataSchema says {', '.join(committed.names)}"
        yield Problem("DataSchema", "DAT-04", message, depends=Doubt.SCHEMA)
        return
    for one, field in zip(found, committed, strict=True):
        if not _alike(one.type, field.type):
            message = f"it is of type {one.type}; SetDataSchema says {field.type}"
            yield Problem("DataSchema", "DAT-04", message, column=field.name, depends=Doubt.SCHEMA)


def _alike(found: Any, committed: Any) -> bool:
    """Return whether two types differ at most in nullability, metadata, names of list items and layout of texts."""
    if found.equals(committed):
        return True
    for kinds in _TEXTS:
        if any(check(found) for check in kinds) and any(check(committed) for check in kinds):
            return True
    if pa.types.is_struct(found) and pa.types.is_struct(committed):
        pairs = list(zip(found, committed, strict=False))
        same = found.num_fields == committed.num_fields
        return same and all(one.name == other.name and _alike(one.type, other.type) for one, other in pairs)
    if is_listed(found) and is_listed(committed):
        return _alike(found.value_type, committed.value_type)
    return False


_TEXTS: Final[tuple[tuple[Callable[[Any], bool], ...], ...]] = (
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
)
