"""Entry points: ``kubectl kubothek``, and the program that ``kubectl`` calls to complete its words.

The plugin has the commands of ``kubothek`` for stores, and those for clusters; ``log``, ``health`` and ``plan`` refer
to the cluster here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from click.shell_completion import ShellComplete

from kubothek.cli.lazy import Entry, LazyGroup
from kubothek.cli.main import COMMANDS, finish

CLUSTER = {
    "status": Entry("kubothek.kubectl.status:status", "Show how resources are."),
    "log": Entry("kubothek.kubectl.log:log", "Show the runs of a Dataset, newest first."),
    "health": Entry("kubothek.kubectl.health:health", "Show how the files of a Dataset are."),
    "tail": Entry("kubothek.kubectl.tail:tail", "Follow a run until it ends."),
    "plan": Entry("kubothek.kubectl.plan:plan", "Say what applying manifests would do; change nothing."),
    "retry": Entry("kubothek.kubectl.acting:retry", "Try again what failed."),
    "suspend": Entry("kubothek.kubectl.acting:suspend", "Start nothing new for a resource."),
    "resume": Entry("kubothek.kubectl.acting:resume", "Undo suspend."),
    "reconcile": Entry("kubothek.kubectl.acting:reconcile", "Do now what is otherwise done at intervals."),
    "ui": Entry("kubothek.kubectl.ui:ui", "Open the Spark UI of a running job."),
    "completion": Entry("kubothek.kubectl.naming:completion", "Print what makes a shell complete words."),
}


@click.group(
    cls=LazyGroup,
    entries={**CLUSTER, **{name: entry for name, entry in COMMANDS.items() if name not in CLUSTER}},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="kubothek", message="%(prog)s %(version)s")
def plugin() -> None:
    """Datasets of a cluster: their state, their history, and what a change would do.

    The commands from `run` on are about a store, with the credentials of this machine.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit, with the exit codes of ``kubothek``."""
    finish(plugin, "kubectl kubothek", arguments)


NO_FILES = 4
"""``ShellCompDirectiveNoFileComp`` of cobra: do not offer files as well."""
DEFAULT = 0
"""``ShellCompDirectiveDefault``: offer files if there are no other candidates."""


def complete(arguments: Sequence[str] | None = None) -> None:
    """Run ``kubectl_complete-kubothek WORD…``: print the candidates for the last word in the format of cobra."""
    *before, last = list(sys.argv[1:] if arguments is None else arguments) or [""]
    found = ShellComplete(plugin, {}, "kubectl kubothek", "_KUBOTHEK_COMPLETE").get_completions(before, last)
    words = [item for item in found if item.type == "plain"]
    for item in words:
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{NO_FILES if len(words) == len(found) else DEFAULT}")
