"""Writes of rows to members of a cube: all rows are checked, then written as files of normal datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, TypeAlias

import pyarrow as pa

from kubothek.cube import validation
from kubothek.cube.cells import Given, Named, check_files, checked
from kubothek.cube.log import CubeTransaction
from kubothek.errors import SchemaMismatch
from kubothek.storage import Store
from kubothek.table import operations
from kubothek.table.filesystem import arrow_filesystem
from kubothek.table.indexes import IndexKind, check_indexable
from kubothek.table.layout import Layout
from kubothek.table.log import Change, Everything, Head, Operation, PartitionFile, Snapshot, Totals, partition_path
from kubothek.table.log.model.head import LAYOUT, OWN_PREFIX, PENDING
from kubothek.table.log.multi.members import Member, in_order, metadata_of
from kubothek.table.log.multi.rules import check
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.log.prepare.skipping import skipping_metadata
from kubothek.table.operations import Rows, Written
from kubothek.table.operations.rows import stored_after
from kubothek.table.scan.read import open_files
from kubothek.table.skipping.model import SkippingState
from kubothek.table.skipping.refresh import beginning
from kubothek.table.time_zones import ZONES, zones_after, zones_in, zones_of

_ROWS_AT_ONCE: Final = 4_000_000

CheckSchema: TypeAlias = Callable[[pa.Schema], None]
Writer: TypeAlias = Callable[[str, Snapshot, CheckSchema], Written]
"""Writes the files of a member. It takes the name, the base snapshot, and a check that it must call with the stored
schema before it writes a row."""
Data: TypeAlias = "Rows | Writer"


_NO_ZONES: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Part:
    """The write to one member.

    ``fresh``         the member is new or replaced: none of its old rows stay
    ``partition_on``  partition columns after the write
    ``metadata``      user metadata to set
    ``skipping``      skipping metadata of a new member
    ``evolves``       the member may get new columns and wider types
    ``is_copy``       the rows are those of another cube, in which a cell may occur several times
    """

    name: str
    data: Data
    fresh: bool
    partition_on: tuple[str, ...]
    metadata: Mapping[str, Any]
    layout: Layout | None = None
    skipping: SkippingState | None = None
    evolves: bool = False
    is_copy: bool = False


def written(store: Store, started: CubeTransaction, spec: CubeSpec, parts: list[Part]) -> dict[str, Written]:
    """Write the files of all parts; return them by member. Columns and given rows are checked before that.

    Raises CubeInvalid, SchemaMismatch, IndexInvalid, PartitionInvalid, DataTypeMismatch, SourceEmpty.
    """
    existing = started.members()
    given = {part.name: Given.of(part.name, part.data) for part in parts if not callable(part.data)}
    planned: dict[str, Member] = {}
    named: dict[str, Named] = {}
    for part in parts:
        if part.name in given:
            schema = given[part.name].schema
            named[part.name] = validation.check_columns(spec, part.name, schema, part.partition_on)
            start = _start(store, spec, part, started, schema)
            planned[part.name] = _planned(spec, part, start, schema, zones_in(schema), evolve=part.evolves)
    others = {name: member for name, member in existing.items() if name not in planned}
    validation.check_payload(
        {name: member.payload for name, member in planned.items()},
        {name: member.payload for name, member in others.items()},
    )
    _check_complete(spec, others | planned, {part.name for part in parts if callable(part.data)})
    done: dict[str, Written] = {}
    with ExitStack() as stack:
        rows = {name: stack.enter_context(checked(each, named[name])) for name, each in given.items()}
        for part in parts:
            base = _start(store, spec, part, started, planned[part.name].schema if part.name in planned else None)
            if callable(part.data):
                done[part.name] = _by_writer(store, spec, part, part.data, base, others | planned)
            else:
                data, evolve = rows[part.name], part.evolves
                made = operations.write_rows(store, base, data, table=base.schema, evolve=evolve)
                done[part.name] = replace(made, begins=base.head.skipping) if part.fresh else made
            started.base(part.name)
            started.note_written(part.name, *done[part.name].keys)
    return {part.name: _finished(spec, part, done[part.name], started.base(part.name)) for part in parts}


def change(spec: CubeSpec, part: Part, made: Written, base: Snapshot, *, by: str) -> Change:
    """Return the change of a part to its member."""
    metadata = {**part.metadata, **metadata_of(spec, part.name)}
    if not part.fresh or not base.exists:
        return replace(operations.append(made, by=by), metadata=metadata)
    user = {key for key in base.head.metadata if not key.startswith(OWN_PREFIX)}
    dropped: dict[str, IndexKind | None] = dict.fromkeys(base.head.index_state.wanted())
    return Change(
        operation=Operation.OVERWRITE,
        added=made.files,
        removed=tuple(base.head.partitions),
        reads=Everything(),
        schema=made.schema,
        replaces_schema=True,
        partition_keys=made.partition_on,
        layout=made.layout,
        index=replace(made.index, wanted=dropped | dict(made.wanted)),
        skipping=made.skipping,
        zones=made.zones,
        metadata=dict.fromkeys(user - metadata.keys()) | metadata,
        by=by,
    )


def _start(store: Store, spec: CubeSpec, part: Part, started: CubeTransaction, schema: pa.Schema | None) -> Snapshot:
    """Return the snapshot that the files of a part are written for: the current one, or that of a new member."""
    base = started.base(part.name)
    if part.fresh:
        layout = part.layout or Layout(partition_on=part.partition_on, sort_by=_order(spec, part, schema))
        definitions = base.head.skipping
        if not definitions.indices and part.skipping is not None and schema is not None:
            definitions = beginning(store, part.skipping, schema, part.partition_on) or definitions
        metadata = {LAYOUT: layout.to_json(), **skipping_metadata(definitions)}
        head = Head(spec.uuid(part.name), {}, part.partition_on, metadata=metadata)
        base = Snapshot(head, None, 0, None, Totals(), None)
    return base if schema is None else replace(base, head=_with_pending(spec, part, base.head, schema))


def _order(spec: CubeSpec, part: Part, schema: pa.Schema | None) -> tuple[str, ...]:
    """Return the sort order: the dimensions (kartothek-cube, "DataFrame Normalization")."""
    names = () if schema is None else schema.names
    return tuple(column for column in spec.dimension_columns if column in names and column not in part.partition_on)


def _planned(
    spec: CubeSpec, part: Part, base: Snapshot, schema: pa.Schema, zones: Mapping[str, str], *, evolve: bool
) -> Member:
    """The member as its head will be, for the rules. Raises what forbids such rows in such a table."""
    layout = Layout.of(base.head)
    if base.schema is not None:
        validation.check_dimensions(spec, part.name, base.schema, schema)
    try:
        stored = stored_after(schema, base.schema, layout, evolve=evolve)
        after = zones_after(base.schema, zones_of(base.head.metadata), zones)
    except SchemaMismatch as error:
        raise SchemaMismatch(f"dataset {part.name!r}: {error}") from error
    layout.check(stored)
    wanted = validation.indexed(spec, part.name, stored, part.partition_on)
    check_indexable(stored, part.partition_on, dict.fromkeys(wanted, IndexKind.KARTOTHEK).items())
    head = base.head.with_metadata({**base.head.metadata, ZONES: after})
    return Member(part.name, spec, replace(base, head=head, schema=stored))


def _check_complete(spec: CubeSpec, members: Mapping[str, Member], unread: set[str]) -> None:
    """Check the rules of a cube, if the columns of the seed are known already."""
    if spec.seed_dataset in members or spec.seed_dataset not in unread:
        check(spec, {name: members[name] for name in in_order(spec, members)})


def _by_writer(
    store: Store, spec: CubeSpec, part: Part, write: Writer, base: Snapshot, others: Mapping[str, Member]
) -> Written:
    """Let the writer write files; check their columns before, and their rows afterwards in the files."""

    def check_schema(stored: pa.Schema, zones: Mapping[str, str] = _NO_ZONES) -> None:
        validation.check_columns(spec, part.name, stored, part.partition_on)
        start = replace(base, head=_with_pending(spec, part, base.head, stored))
        member = _planned(spec, part, start, stored, zones, evolve=True)  # to what, the writer decides
        known = {name: each for name, each in others.items() if name != part.name} | {part.name: member}
        validation.check_payload(
            {part.name: member.payload},
            {name: each.payload for name, each in known.items() if name != part.name},
        )
        _check_complete(spec, known, {spec.seed_dataset} - known.keys())

    made = write(part.name, base, check_schema)
    check_schema(made.schema, made.zones)
    if part.is_copy:
        return made
    named = validation.check_columns(spec, part.name, made.schema, part.partition_on)
    filesystem = arrow_filesystem(store)
    for files in _packs(made.files):
        check_files(part.name, open_files(store, [file.key for file in files], made.schema, filesystem), named)
    return made


def _packs(files: Sequence[PartitionFile]) -> Iterator[list[PartitionFile]]:
    """Yield packs of files of about 4 million rows. A partition is never divided, as it holds all rows of a cell."""
    pack: list[PartitionFile] = []
    for _, group in groupby(sorted(files, key=_partition), key=_partition):
        pack += group
        if sum(file.rows for file in pack) >= _ROWS_AT_ONCE:
            yield pack
            pack = []
    if pack:
        yield pack


def _partition(file: PartitionFile) -> str:
    return partition_path(file.key)


def _with_pending(spec: CubeSpec, part: Part, head: Head, schema: pa.Schema) -> Head:
    """Return the head with the cube's missing indices as pending, so that they are built with the first values."""
    state = head.index_state
    needed = _missing_indices(spec, part, head, schema)
    pending = {column: str(kind) for column, kind in {**state.pending, **needed}.items()}
    return head.with_metadata({**head.metadata, PENDING: pending})


def _missing_indices(spec: CubeSpec, part: Part, head: Head, schema: pa.Schema) -> dict[str, IndexKind]:
    state = head.index_state
    there = {*state.kartothek, *state.pending}
    needed = validation.indexed(spec, part.name, schema, part.partition_on)
    return {column: IndexKind.KARTOTHEK for column in needed if column not in there}


def _finished(spec: CubeSpec, part: Part, made: Written, base: Snapshot) -> Written:
    """Return the written files with additions to the member's head: indices, and the layout of a new member."""
    before = Head(spec.uuid(part.name)) if part.fresh else base.head
    made = replace(made, wanted={**made.wanted, **_missing_indices(spec, part, before, made.schema)})
    if not part.fresh:
        return made
    layout = part.layout or Layout(partition_on=part.partition_on, sort_by=_order(spec, part, made.schema))
    return replace(made, layout=made.layout or layout.to_json())
