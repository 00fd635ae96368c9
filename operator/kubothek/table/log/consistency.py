"""Check that what other programs see of a ledger agrees with its head."""

from __future__ import annotations

from kubothek.errors import Diverged
from kubothek.table.log.journal import Journal, Observed
from kubothek.table.log.prepare.draft import require_no_drift


def require_sound_ledger(journal: Journal, seen: Observed | None) -> None:
    """Raise Drift if the table is not the view of the chain, Diverged if ``refs/head`` names another chain's block.

    A foreign head that was not adopted yet is not checked. Costs one request for a ledger, none for other datasets.
    """
    if seen is None or seen.marker is None or seen.head.chain is None or seen.head.tombstone:
        return
    require_no_drift(seen.head)
    if (named := journal.stray_ref(seen)) is not None:
        raise Diverged(
            f"refs/head of the ledger {journal.uuid!r} names block {named}, which no commit of this dataset left; the "
            "next commit adopts it if it continues the chain; otherwise the commit fails and reports why"
        )
