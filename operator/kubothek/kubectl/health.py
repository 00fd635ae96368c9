"""``kubectl kubothek health``: the state of a Dataset's files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kubothek.kubectl.acting import existing
from kubothek.kubectl.cluster import Cluster, ClusterProblem, cluster_options
from kubothek.kubectl.naming import Named, ResourceName
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.api.dataset import Dataset


@click.command()
@click.argument("dataset", type=ResourceName("Dataset"))
@cluster_options
def health(dataset: Named, cluster: Cluster) -> int:
    """Show the state of a Dataset's files, as the last job observed it. Exit code 1 if something is missing or lost."""
    from kubothek.api.dataset import Dataset
    from kubothek.api.kinds import InvalidResource, parse

    there = cluster.run(lambda api, namespace: existing(api, namespace, dataset))
    try:
        found = parse(there)
    except InvalidResource as error:
        raise ClusterProblem(f"{dataset} is of another release than this command: {error}") from None
    assert isinstance(found, Dataset)
    for line in _lines(found):
        click.echo(line)
    return 1 if found.status.corrupt or found.status.ailments else 0


def _lines(dataset: Dataset) -> Iterator[str]:
    from kubothek.api.values import render_bytes
    from kubothek.cli.columns import shown_time
    from kubothek.cli.health import iceberg_line

    status = dataset.status
    if status.version is None:
        yield f"{dataset.name}: nothing was committed yet"
        return
    yield f"{dataset.name}: version {status.version} of {shown_time(status.last_commit_time)}"
    size = f"{count(status.files, 'file')} ({status.size})"
    yield f"{count(status.rows, 'row')} in {size}, partitions: {status.partitions:,}"
    for index in status.indices:
        yield f"index on {index.column} ({index.kind}): {index.state}"
    if status.health is not None:
        found = status.health
        yield f"small files: {found.small_files:,} ({found.small_percent}%)"
        yield f"held by history only: {count(found.history_files, 'file')} ({render_bytes(found.history_bytes)})"
        yield f"versions kept: {found.versions:,}"
        yield f"garbage, estimated: {count(found.garbage_files, 'file')} ({render_bytes(found.garbage_bytes)})"
    if (exported := status.iceberg) is not None:
        yield iceberg_line(exported.version, exported.lag, exported.problem)
    for ailment in status.ailments:
        yield f"missing: {ailment}"
    if status.corrupt is not None:
        yield f"LOST: {status.corrupt}"
    yield f"last inspected: {shown_time(status.inspected_time)}"
