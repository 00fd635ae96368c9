"""The commands in the documentation are commands, with options that they have."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from kubothek.cli.main import cli
from kubothek.kubectl.main import plugin

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("admission", "gitops", "kubectl")


def commands(page: str) -> list[list[str]]:
    """Each line of a code block that begins with one of our programs, or has it in a substitution."""
    blocks = re.findall(r"^```\n(.*?)^```", (DOCS / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    found = (re.search(r"(?:^|\()((?:kubectl )?kubothek [^#)]*)", line) for line in lines)
    return [shlex.split(match[1]) for match in found if match is not None]


@pytest.mark.parametrize("page", PAGES)
def test_documented_commands_parse(page: str) -> None:
    listed = commands(page)
    assert listed
    for words in listed:
        group: click.Group = plugin if words[0] == "kubectl" else cli
        name, *arguments = words[2 if words[0] == "kubectl" else 1 :]
        with click.Context(group, info_name=words[0]) as context:
            command = group.get_command(context, name)
            assert command is not None, words
            with command.make_context(name, list(arguments), parent=context):
                pass  # usage errors raise


def test_plugin_commands_are_all_documented() -> None:
    from kubothek.kubectl.main import CLUSTER

    assert {words[2] for words in commands("kubectl") if words[0] == "kubectl"} == set(CLUSTER)
