"""A command line of each verb of ``kubothek``, on the project that :mod:`tests.failures.project` makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import split
from typing import Final

import click

from kubothek.cli.main import cli


@dataclass(frozen=True)
class Row:
    """One verb.

    ``line``    its arguments; ``{block}`` is a block of the ledger
    ``writes``  whether it changes the store, so that it has to fail where that cannot be changed
    ``store``   whether it asks the store at all
    ``code``    of its exit where nothing is wrong
    ``half``    another line that does the first of two commits of this one, after which it may stop
    ``slow``    it starts processes, or goes on until it is interrupted: tried in a soak only
    """

    line: str
    writes: bool = True
    store: bool = True
    code: int = 0
    half: str | None = None
    slow: bool = False

    def arguments(self, places: Mapping[str, str]) -> list[str]:
        return split(self.line.format_map(places))


def reads(line: str) -> Row:
    return Row(line, writes=False)


ROWS: Final[dict[str, Row]] = {
    "run": Row("run -f project.yaml", slow=True),
    "plan": reads("plan -f project.yaml"),
    "lint": Row("lint project.yaml", writes=False, store=False),
    "put": Row("put planes-1.csv --to in/"),
    "get": reads("get"),
    "describe": reads("describe letters"),
    "log": reads("log letters"),
    "diff": reads("diff letters 1 3"),
    "append": Row("append letters letters.csv"),
    "merge": Row("merge letters letters.csv --key n"),
    "replace": Row("replace letters letters.csv"),
    "overwrite": Row("overwrite letters letters.csv"),
    "update": Row('update letters "n = 1" --set n=100'),
    "delete": Row("delete letters \"kind = 'a'\" --yes"),
    "columns add": Row("columns add words x=int64"),
    "columns rename": Row("columns rename words n=m"),
    "columns drop": Row("columns drop words n --yes"),
    "create": Row("create fresh --partition-on n"),
    "copy": Row("copy words others"),
    "rename": Row("rename words others --yes", half="copy words others"),
    "drop": Row("drop words --yes"),
    "restore": Row("restore gone"),
    "adopt": reads("adopt letters"),
    "index": Row("index letters --rebuild"),
    "skipping build": Row("skipping build letters --index MinMax:n"),
    "skipping refresh": Row("skipping refresh letters"),
    "skipping describe": reads("skipping describe letters"),
    "skipping explain": reads('skipping explain letters "n = 1"'),
    "skipping drop": Row("skipping drop letters --yes"),
    "skipping stats": reads('skipping stats "SELECT * FROM letters"'),
    "health": reads("health letters"),
    "compact": Row("compact letters"),
    "heal": Row("heal letters"),
    "verify": reads("verify letters"),
    "files": reads("files letters"),
    "iceberg": Row("iceberg letters"),
    "completion": Row("completion bash", writes=False, store=False),
    "tag": Row("tag letters here"),
    "gc": reads("gc letters --keep-versions 1"),
    "grace": reads("grace"),
    "query": reads('query "SELECT count(*) FROM letters"'),
    "import": Row("import more.yaml"),
    "export": Row("export planes exported", writes=False),
    "serve": Row("serve --listen 127.0.0.1:0", writes=False, slow=True),
    "push": Row("push planes file:pushed", writes=False),
    "search": reads("search planes"),
    "login": Row("login http://127.0.0.1:9/ --stdin", writes=False, store=False, code=2),
    "logout": Row("logout http://127.0.0.1:9/", writes=False, store=False),
    "ingest": Row("ingest planes planes-2.csv"),
    "poll": Row("poll polled"),
    "pull": Row("pull polled"),
    "lineage": reads("lineage planes"),
    "tail": reads("tail planes"),
    "chain reset": Row("chain reset planes {block} --yes"),
    "chain compact": Row("chain compact planes --yes"),
    "set-watermark": Row("set-watermark planes 2100-01-01T00:00:00Z"),
    "cube info": reads("cube info geo"),
    "cube stats": reads("cube stats geo"),
    "cube query": reads("cube query geo"),
    "cube build": Row("cube build more --dimension-columns x --partition-columns p --data seed=seed.csv"),
    "cube extend": Row("cube extend geo --data more=more.csv --partition-on more="),
    "cube append": Row("cube append geo --data seed=seed-2.csv"),
    "cube update": Row('cube update geo --data seed=seed-2.csv --remove "p = 1"'),
    "cube remove-partitions": Row('cube remove-partitions geo "p = 1" --yes'),
    "cube delete": Row("cube delete geo --yes"),
    "cube discard": Row("cube discard geo --yes"),
    "cube cleanup": Row("cube cleanup geo --yes", writes=False),
    "cube copy": Row("cube copy geo --tgt-prefix copied"),
    "cube index": Row("cube index geo seed v"),
}


DRY_RUNS: Final = (
    reads("gc letters --keep-versions 1"),
    reads("compact letters --dry-run"),
    reads("diff letters 1 3 --rows --key n"),
    reads("cube cleanup geo --dry-run"),
    reads("cube delete geo --dry-run"),
    reads('cube remove-partitions geo "p = 1" --dry-run'),
    reads("cube copy geo --tgt-prefix copied --dry-run"),
    reads('update letters "n = 1" --set n=100 --dry-run'),
    reads("delete letters \"kind = 'a'\" --dry-run"),
    reads("copy words others --dry-run"),
    reads("drop words --dry-run"),
)
"""What only shows, or says what it would do, and so needs no right to write."""


def verbs(group: click.Group = cli, prefix: str = "") -> Iterator[str]:
    """All verbs that the command line has, those of groups with the group's name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from verbs(command, f"{prefix}{name} ")
        else:
            yield prefix + name
