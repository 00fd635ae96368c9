"""How commits reach the head of a dataset: straight, or through the cube that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.journal import Draft, Journal, Observed
from kubothek.table.log.model.record import Record
from kubothek.table.log.settle import CommitBackoff, settled

Look = Callable[[], Observed | None]


class Way(Protocol):
    """What a log and its transactions need of it."""

    @property
    def journal(self) -> Journal:
        """Of the dataset."""

    def settled(
        self, patience: CommitBackoff, first_look: Look | None = None, *, adopts: bool = True
    ) -> Observed | None:
        """As :func:`kubothek.table.log.settle.settled`."""

    def shown(self) -> tuple[Snapshot | None] | None:
        """What readers of the dataset's cube see of it; (None,): it is no member; None if there is no cube."""

    def publish(
        self,
        draft: Draft,
        on: Observed | None,
        *,
        before_swap: Callable[[Record], None] | None = None,
        after_swap: Callable[[str], None] | None = None,
    ) -> Observed | None:
        """As :meth:`Journal.publish`."""


class DatasetHeadTarget:
    """The way of a dataset that belongs to no cube."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.publish = journal.publish

    def settled(
        self, patience: CommitBackoff, first_look: Look | None = None, *, adopts: bool = True
    ) -> Observed | None:
        """The head with nothing left to settle."""
        return settled(self.journal, patience, first_look, adopts=adopts)

    def shown(self) -> None:
        """It has no cube."""
