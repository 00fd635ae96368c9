"""``kubothek cube remove-partitions``, ``delete``, ``discard``, ``cleanup``: deletions, after confirmation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_cube
from kubothek.cli.cube.common import choice_options, chosen, commit_message, open_cube
from kubothek.cli.options import store_options
from kubothek.cli.parameters import dry_run_option, id_option, yes_option
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice


@click.command("remove-partitions")
@store_options
@click.argument("prefix", metavar="CUBE", shell_complete=complete_cube)
@click.argument("where", metavar="FILTER")
@choice_options
@dry_run_option
@yes_option
@id_option
def remove_partitions(
    choice: StoreChoice,
    prefix: str,
    where: str,
    include: str | None,
    exclude: str | None,
    dry_run: bool,
    yes: bool,
    commit_id: str | None,
) -> None:
    """Remove the partitions of a cube that match FILTER, such as "month = 3", in one commit.

    FILTER applies to each dataset by the partition columns that it has. A dataset with none of them is emptied:
    --exclude keeps it.
    """
    from kubothek.cube import removing
    from kubothek.table.expressions import parse

    with choice.opened() as store:
        cube = open_cube(store, prefix)
        snapshot, condition = cube.snapshot(), parse(where)
        names = chosen(snapshot.members, include, exclude)
        removing.check_condition(snapshot.spec, condition)
        members = {name: snapshot.member(name) for name in names}
        for name, change in removing.by_member(store, members, condition, by="cli").items():
            click.echo(
                f"{name}: {count(len(change.removed), 'file')} of {len(members[name].snapshot.head.partitions):,}"
            )
        if dry_run:
            return
        if not yes:
            click.confirm(f"remove them from {prefix}?", abort=True)
        click.echo(commit_message(prefix, cube.remove_partitions(condition, datasets=names, id=commit_id)))


@click.command()
@store_options
@click.argument("prefix", metavar="CUBE", shell_complete=complete_cube)
@choice_options
@dry_run_option
@yes_option
@id_option
def delete(
    choice: StoreChoice,
    prefix: str,
    include: str | None,
    exclude: str | None,
    dry_run: bool,
    yes: bool,
    commit_id: str | None,
) -> None:
    """Delete datasets of a cube in one commit; all of them, unless --include or --exclude says otherwise.

    Their files are deleted after the grace period of the store.
    """
    with choice.opened() as store:
        cube = open_cube(store, prefix)
        names = chosen(cube.snapshot().members, include, exclude)
        if dry_run:
            click.echo(f"would be deleted: {', '.join(names)}")
            return
        if not yes:
            click.confirm(f"delete {', '.join(names)} of {prefix}?", abort=True)
        done = cube.delete(names, id=commit_id)
        click.echo(f"{commit_message(prefix, done)}; {', '.join(names)} deleted")


@click.command()
@store_options
@click.argument("prefix", metavar="CUBE", shell_complete=complete_cube)
@yes_option
def discard(choice: StoreChoice, prefix: str, yes: bool) -> None:
    """Revert changes by other programs since the current version of a cube, if it is CubeBroken.

    Its datasets become what readers of the cube see now. A dataset that was added is deleted; its files are deleted
    after the grace period of the store.
    """
    with choice.opened() as store:
        cube = open_cube(store, prefix, unowned_only=False)
        now = cube.snapshot()
        if not yes:
            click.confirm(f"revert changes by other programs to {prefix} since version {now.version}?", abort=True)
        done = cube.discard_foreign()
        click.echo(f"{prefix}: version {done.version}: {', '.join(done.members)}, as in version {now.version}")


@click.command()
@store_options
@click.argument("prefix", metavar="CUBE", shell_complete=complete_cube)
@dry_run_option
@yes_option
def cleanup(choice: StoreChoice, prefix: str, dry_run: bool, yes: bool) -> None:
    """Delete objects under the prefix of a cube that no version of its datasets references.

    Only objects older than the grace period of the store are deleted: files of commits in progress stay.
    """
    from kubothek.api.values import render_bytes

    with choice.opened() as store:
        cube = open_cube(store, prefix, unowned_only=False)
        found = cube.cleanup(dry_run=True)
        objects = sum(kind.objects for each in found.values() for kind in each.found.values())
        size = sum(kind.bytes for each in found.values() for kind in each.found.values())
        amount = f"{count(objects, 'object')} ({render_bytes(size)})"
        if dry_run or not objects:
            click.echo(f"{prefix}: {amount} unreferenced")
            return
        if not yes:
            click.confirm(f"delete {amount} of {prefix}?", abort=True)
        cube.cleanup(dry_run=False)
        click.echo(f"{prefix}: {amount} deleted")
