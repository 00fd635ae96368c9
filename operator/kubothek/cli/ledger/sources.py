"""Reads of polling sources on the user's machine: any host, files, and programs if allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubothek.odf.sources.fetch import FetchContext
    from kubothek.storage import StoreConfig


def locally(
    stores: Sequence[StoreConfig],
    *,
    env: Mapping[str, str],
    fetch_uncacheable: bool,
    allow_commands: bool,
    allow_containers: bool,
) -> FetchContext:
    """Return what a poll that the user starts may do."""
    from kubothek.ingest import UrlPolicy
    from kubothek.odf.sources.fetch import FetchContext, in_stores
    from kubothek.odf.sources.fetch.containers import run_locally
    from kubothek.odf.spec.timestamps import Timestamp

    return FetchContext(
        policy=UrlPolicy(("*",), allow_local=True),
        now=Timestamp.of(datetime.now(UTC)),
        env=env,
        fetch_uncacheable=fetch_uncacheable,
        locate=in_stores(list(stores)),
        run_container=run_locally("docker") if allow_containers else None,
        allow_commands=allow_commands,
    )
