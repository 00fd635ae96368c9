"""``kubothek lint``: are these manifests valid?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from kubothek.cli.options import manifests_option


@click.command()
@manifests_option
def lint(manifests: tuple[Path, ...]) -> None:
    """Check manifests without looking at any store.

    Everything that is wrong is told at once, with file and line; nothing is changed.
    """
    from kubothek.runtime.local.manifests import load
    from kubothek.runtime.local.words import count

    counts = Counter(key.kind for key in load(manifests).resources)
    click.echo("valid: " + (", ".join(count(number, kind) for kind, number in counts.items()) or "nothing but Secrets"))
