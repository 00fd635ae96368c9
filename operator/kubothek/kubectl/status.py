"""``kubectl kubothek status``: the state of resources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from kubothek.cli.columns import columns
from kubothek.kubectl.cluster import Cluster, cluster_options
from kubothek.kubectl.naming import Named, ResourceName

if TYPE_CHECKING:
    from kubothek.cluster.api import Api, Object
    from kubothek.local.summary import Summary


@click.command()
@click.argument("resources", nargs=-1, type=ResourceName(), metavar="[KIND/NAME]...")
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def status(resources: tuple[Named, ...], cluster: Cluster, all_namespaces: bool, output: str) -> int:
    """Show the state of resources: all of a namespace, or the named ones.

    Named resources are shown with their conditions. Exit code 1 if a resource is not ready.
    """
    from kubothek.local.summary import summarise

    objects = cluster.run(lambda api, namespace: _objects(api, None if all_namespaces else namespace, resources))
    parsed = [(obj, _parsed(obj)) for obj in objects]
    summaries = [(obj, summarise(found)) for obj, found in parsed if found is not None]
    if output == "json":
        _as_json(summaries)
    elif not objects:
        click.echo("nothing of Kubothek is in this namespace")
    else:
        for line in _table(summaries, spaces=all_namespaces):
            click.echo(line)
        for obj, _ in summaries if resources else ():
            for line in _conditions(obj):
                click.echo(line)
    for obj, found in parsed:
        if found is None:
            click.echo(f"warning: {obj['kind']} {obj['metadata']['name']} is of another release", err=True)
    return 0 if all(summary.phase.fine for _, summary in summaries) and len(summaries) == len(objects) else 1


async def _objects(api: Api, namespace: str | None, named: Sequence[Named]) -> list[Object]:
    from kubothek.api.kinds import KINDS
    from kubothek.kubectl.acting import existing

    if named:
        return [await existing(api, namespace or "default", each) for each in named]
    return [
        {"apiVersion": "kubothek.io/v1alpha1", "kind": kind, **obj}
        for kind in KINDS
        async for page, _ in api.pages(kind, namespace)
        for obj in page
    ]


def _parsed(obj: Object) -> Any:
    from kubothek.api.kinds import InvalidResource, parse

    try:
        return parse(obj)
    except InvalidResource:
        return None


def _table(summaries: Sequence[tuple[Object, Summary]], *, spaces: bool) -> Iterator[str]:
    rows = []
    for _, summary in summaries:
        key, progress = summary.key, summary.progress
        text = summary.message if progress is None else f"{progress.stage}: {summary.message}"
        row = (key.kind, key.name, str(summary.phase), summary.reason, text.replace("\n", " "))
        rows.append((key.namespace, *row) if spaces else row)
    yield from columns((("NAMESPACE",) if spaces else ()) + ("KIND", "NAME", "STATE", "REASON", "MESSAGE"), rows)


def _conditions(obj: Object) -> Iterator[str]:
    found = (obj.get("status") or {}).get("conditions") or ()
    yield ""
    yield f"{obj['kind']} {obj['metadata']['name']}:"
    rows = [(c["type"], c["status"], c["reason"], c["lastTransitionTime"], c["message"]) for c in found]
    yield from columns(("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"), rows)


def _as_json(summaries: Sequence[tuple[Object, Summary]]) -> None:
    import orjson

    listed = [
        {
            "kind": summary.key.kind,
            "namespace": summary.key.namespace,
            "name": summary.key.name,
            "state": summary.phase,
            "reason": summary.reason,
            "message": summary.message,
            "suspended": bool(obj["spec"].get("suspend")),
        }
        for obj, summary in summaries
    ]
    click.echo(orjson.dumps(listed, option=orjson.OPT_INDENT_2))
