"""How polling sources are read on one's own machine: any host, files, and programs if that is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubothek.lake.ledger.fetching import FetchContext
    from kubothek.lake.store import StoreConfig


def locally(
    stores: Sequence[StoreConfig],
    *,
    env: Mapping[str, str],
    fetch_uncacheable: bool,
    allow_commands: bool,
    allow_containers: bool,
) -> FetchContext:
    """What a poll may do when a person asks for it."""
    from kubothek.lake.ledger.fetching import FetchContext, in_stores
    from kubothek.lake.ledger.fetching.containers import run_locally
    from kubothek.lake.ledger.formats.timestamps import Timestamp
    from kubothek.lake.sources import UrlPolicy

    return FetchContext(
        policy=UrlPolicy(("*",), allow_local=True),
        now=Timestamp.of(datetime.now(UTC)),
        env=env,
        fetch_uncacheable=fetch_uncacheable,
        locate=in_stores(list(stores)),
        run_container=run_locally("docker") if allow_containers else None,
        allow_commands=allow_commands,
    )
