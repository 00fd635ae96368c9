"""Whether what others can see of a ledger is what its head says."""

from __future__ import annotations

from kubothek.errors import Diverged
from kubothek.table.log.journal import Journal, Observed
from kubothek.table.log.prepare.draft import require_no_drift


def require_sound_ledger(journal: Journal, seen: Observed | None) -> None:
    """Raises Drift if its table is not the view of its chain, Diverged if ``refs/head`` names another chain's block.

    Of a foreign head that nobody has adopted yet nothing is known. Costs a ledger one request, others none.
    """
    if seen is None or seen.marker is None or seen.head.chain is None or seen.head.tombstone:
        return
    require_no_drift(seen.head)
    if (named := journal.stray_ref(seen)) is not None:
        raise Diverged(
            f"refs/head of the ledger {journal.uuid!r} names block {named}, which no commit of this dataset left; the "
            "next commit takes it in if it goes on from the chain, else it will say what is in the way"
        )
