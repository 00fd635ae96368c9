"""How commits reach the head of a dataset: directly, or through the head of its cube."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.journal import Draft, Journal, Observed
from kubothek.table.log.model.record import Record
from kubothek.table.log.settle import CommitBackoff, settled

Look = Callable[[], Observed | None]


class Way(Protocol):
    """What a log and its transactions need of a commit target."""

    @property
    def journal(self) -> Journal:
        """The journal of the dataset."""

    def settled(
        self, patience: CommitBackoff, first_look: Look | None = None, *, adopts: bool = True
    ) -> Observed | None:
        """Settle as :func:`kubothek.table.log.settle.settled` does."""

    def shown(self) -> tuple[Snapshot | None] | None:
        """Return the snapshot that readers of the cube see; (None,) if it is not a member, None if there is no cube."""

    def publish(
        self,
        draft: Draft,
        on: Observed | None,
        *,
        before_swap: Callable[[Record], None] | None = None,
        after_swap: Callable[[str], None] | None = None,
    ) -> Observed | None:
        """Publish as :meth:`Journal.publish` does."""


class DatasetHeadTarget:
    """The commit target of a dataset that belongs to no cube."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.publish = journal.publish

    def settled(
        self, patience: CommitBackoff, first_look: Look | None = None, *, adopts: bool = True
    ) -> Observed | None:
        """Return the head with nothing left to settle."""
        return settled(self.journal, patience, first_look, adopts=adopts)

    def shown(self) -> None:
        """Return None: there is no cube."""
