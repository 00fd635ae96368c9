"""Commits of a writer that the owner of a dataset admits (commit-protocol, "Other writers").

The name of a writer guards against mistakes only: any program with the credentials of the bucket can write to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kubothek.errors import DatasetDeleted, OwnedByAnother, PartitionInvalid, SchemaMismatch
from kubothek.table.log.journal import Draft, Journal, Observed
from kubothek.table.log.model.head import Head
from kubothek.table.log.model.record import Record
from kubothek.table.log.model.writers import GRANTABLE, Grant
from kubothek.table.log.settle import Way, unadopted
from kubothek.table.schema import merge


@dataclass(frozen=True, slots=True)
class Author:
    """A client of the library that writes: its name, None if it has none; and the operation that it begins.

    ``operation``  one of :data:`~kubothek.table.log.model.writers.GRANTABLE`; any other is the owner's alone
    """

    name: str | None
    operation: str | None


class GrantedTarget:
    """The commit target of one author: checks the grant in the very head that each swap replaces."""

    def __init__(self, way: Way, author: Author) -> None:
        self.journal: Journal = way.journal
        self.settled = way.settled
        self.shown = way.shown
        self.named = way.named
        self._way = way
        self._author = author
        self._grant: Grant | None = None

    def require(self, owner: str | None, observe: Callable[[], Observed | None]) -> None:
        """Check that the author may begin its operation on a dataset of this owner; write nothing.

        ``observe``  reads the head; it is called for a dataset with an owner and an author with a name

        Raises OwnedByAnother, which names the field of the Dataset to set.
        """
        self._grant = None
        if owner is None:
            return
        named = f"dataset {self.journal.uuid!r} in {self.journal.store.url} belongs to {owner}"
        if self._author.operation not in GRANTABLE:
            raise OwnedByAnother(
                f"{named} and is written through that resource only: change the Dataset, apply a Commit manifest, or "
                "use another name"
            )
        if self._author.name is None:
            raise OwnedByAnother(
                f"{named} and is written through that resource only: apply a Commit manifest, or use another name. Or "
                "add this client to spec.writers of the Dataset, and set its name: kubothek.open(url, writer=NAME), or "
                "KUBOTHEK_WRITER"
            )
        seen = observe()
        if seen is None:
            raise OwnedByAnother(
                f"{named} and has no table yet: if spec.writers of the Dataset names {self._author.name!r}, its next "
                "inspection creates the table"
            )
        if seen.head.tombstone:
            raise DatasetDeleted(f"{named} and was deleted: restore it, or start a new table with a Commit manifest")
        grant = (unadopted(self.journal, seen) if seen.marker is None else seen).head.grant
        granted = grant if grant is not None and grant.owner == owner else None
        self._grant = self._require_in(granted, owner, self._author.operation)

    def publish(
        self,
        draft: Draft,
        on: Observed | None,
        *,
        before_swap: Callable[[Record], None] | None = None,
        after_swap: Callable[[str], None] | None = None,
    ) -> Observed | None:
        """Publish as :meth:`Journal.publish` does, in the author's name, if the grant in the head ``on`` permits it.

        Raises OwnedByAnother if the grant was withdrawn, or the Dataset was created again, since the commit began;
        SchemaMismatch and PartitionInvalid for columns that the Dataset does not permit to change.
        """
        if (began := self._grant) is not None:
            head = Head(self.journal.uuid) if on is None else on.head
            now = head.grant
            if now is not None and (now.owner, now.incarnation) != (began.owner, began.incarnation):
                raise OwnedByAnother(
                    f"the Dataset {began.owner} was created again since this {draft.operation} of "
                    f"{self._author.name!r} began, and nothing was committed: run it again"
                )
            self._require_columns(draft, head, self._require_in(now, began.owner, draft.operation))
            draft = replace(draft, by=self._author.name or "")
        return self._way.publish(draft, on, before_swap=before_swap, after_swap=after_swap)

    def _require_in(self, grant: Grant | None, owner: str, operation: str) -> Grant:
        """Return the grant if it permits the author this operation; else raise OwnedByAnother."""
        named, name = (
            f"dataset {self.journal.uuid!r} in {self.journal.store.url} belongs to {owner}",
            self._author.name or "",
        )
        permitted = {} if grant is None else grant.writers
        if grant is None or name not in permitted:
            listed = f"names {', '.join(map(repr, sorted(permitted)))}" if permitted else "is empty"
            raise OwnedByAnother(
                f"{named}, whose spec.writers {listed} and does not permit {name!r} to write: add {name!r} to "
                "spec.writers of the Dataset, which takes effect at its next inspection"
            )
        if operation not in permitted[name]:
            raise OwnedByAnother(
                f"{named}, which permits {name!r} {', '.join(sorted(permitted[name]))}, and not {operation}: add "
                f"{operation} to the operations of {name!r} in spec.writers of the Dataset, which takes effect at its "
                "next inspection"
            )
        return grant

    def _require_columns(self, draft: Draft, head: Head, grant: Grant) -> None:
        """Raise SchemaMismatch or PartitionInvalid if the commit changes columns against the manifest."""
        if draft.delta.partition_keys is not None and head.partitions:
            raise PartitionInvalid(
                f"dataset {self.journal.uuid!r} belongs to {grant.owner}: {self._author.name!r} may not change its "
                "partition columns, which spec.table.partitionOn of the Dataset sets"
            )
        schemas = self.journal.schemas
        before, after = schemas.get(head.schema_hash), schemas.get(draft.delta.schema)
        if before is None or after is None:
            return
        try:
            merge(before, after, evolve=grant.evolves)
            if lost := sorted(set(before.names) - set(after.names)):
                raise SchemaMismatch(f"the table would lose {', '.join(map(repr, lost))}")
        except SchemaMismatch as error:
            remedy = "" if grant.evolves else "; for new columns, set spec.table.schemaEvolution to Compatible"
            raise SchemaMismatch(
                f"dataset {self.journal.uuid!r} belongs to {grant.owner}, and {self._author.name!r} may not change "
                f"its columns: {error}{remedy}"
            ) from error
