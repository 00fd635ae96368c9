"""Four journeys of a newcomer through the code: the functions to open, in the order of their calls.

Functions of one module stand together if they are read together.

A step is left out only if its name and the first line of its docstring are enough to go on: leaf helpers, constructors
that only keep their arguments, the parsers of one file format. ``*`` marks a second call of the user.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

JOURNEYS: Final = {
    "Commit": """
        jobs.main:main
        jobs.main:perform
        jobs.commit:run
        jobs.commit:_commit
        jobs.commit:_maker
        jobs.commit:_with_rows
        table.log.dataset_log:DatasetLog.begin
        table.log.dataset_log:DatasetLog._settled
        table.log.dataset_log:DatasetLog.settled
        table.log.settle:DatasetHeadTarget.settled
        table.log.settle:settled
        table.log.settle:_step
        table.log.journal:Journal.observe
        table.log.transaction:applied
        table.log.transaction:Transaction.__init__
        table.log.history.snapshot:snapshot_of
        jobs.ingest:write_source
        jobs.ingest:_write
        ingest.write:decide_schemas
        ingest.write:ingest_here
        ingest.write:_pieces
        ingest.write:Ingest.read
        ingest.reader:SourceReader.plan
        ingest.reader:SourceReader.read
        table.files:PartitionedWriter.write
        table.files:PartitionedWriter._add
        table.files:PartitionedWriter._encode
        table.files:PartitionedWriter._write_row_group
        table.files:PartitionedWriter.finish
        table.operations.written:Gatherer.observe
        table.operations.written:append
        table.log.transaction:Transaction.commit
        table.log.prepare.draft:draft
        table.log.prepare.draft:require_valid
        table.log.prepare.draft:_require_no_conflict
        table.log.prepare.draft:conflicts
        table.log.journal:Journal.publish
        table.log.journal:Journal.prepare
        table.log.journal:Journal.swap
        table.log.journal:Journal._complete
        table.log.model.swap:HeadSwap.compare_and_swap
        table.log.model.markers:Markers.mark
        jobs.state:state_of
        table.maintenance.health:health
        jobs.outcome:keep
        jobs.outcome:leave
        jobs.outcome:report_success
    """,
    "Query": """
        jobs.main:main
        jobs.main:perform
        jobs.query:run
        jobs.query:_into_file
        jobs.query:_prepare
        jobs.statement:plan
        sandboxed_sql:LimitedQuery.__init__
        sandboxed_sql:run
        sandboxed_sql:_rows
        sandboxed_sql:OneStore.opened
        sandboxed_sql:_prepared
        sandboxed_sql:_prepare
        sandbox.limited:run
        catalog:Lake.look
        sql.query:prepare
        sql.query:Query.plan
        sql.query:Query._open
        sql.query:Query.rows
        sql.query:Query._run
        sql.statement:parse
        sql.filters:needed_rows
        sql.filters:_of_select
        sql.conditions:weakened
        table.log.dataset_log:DatasetLog.snapshot
        table.log.dataset_log:DatasetLog._existing_head
        table.log.settle:read_head
        table.log.journal:Journal.observe
        table.log.history.snapshot:snapshot_of
        table.scan.plan:plan
        table.scan.plan:_by_path
        table.scan.plan:_by_statistics
        table.scan.pruner:Pruner.of
        table.scan.pruner:path_columns
        table.scan.pruner:Pruner.by_path
        table.scan.pruner:by_partition
        table.scan.pruner:by_bucket
        table.scan.pruner:Pruner.by_index
        table.scan.pruner:Pruner._in_index
        table.scan.pruner:Pruner.skipping
        table.scan.pruner:Pruner.verdicts
        table.scan.statistics:verdicts
        table.scan.read:arrow_dataset
        table.indexes.lookup:lookup_interval
        table.skipping.prune.plan:Skipping.may
        table.expressions.model:Predicate.bind
        sql.result:publish
        sql.result:_write
        jobs.outcome:keep
        jobs.outcome:leave
        jobs.outcome:report_success
    """,
    "where=": """
        catalog:Lake.dataset
        * dataset.reading:Reading.plan
        dataset.handle:Handle.snapshot
        table.log.dataset_log:DatasetLog.snapshot
        table.log.dataset_log:DatasetLog._existing_head
        table.log.settle:read_head
        table.log.journal:Journal.observe
        table.log.history.snapshot:snapshot_of
        table.scan.plan:plan
        table.scan.plan:_by_path
        table.scan.plan:_by_statistics
        table.scan.pruner:Pruner.of
        table.scan.pruner:path_columns
        table.scan.pruner:Pruner.by_path
        table.scan.pruner:by_partition
        table.scan.pruner:by_bucket
        table.scan.pruner:Pruner.by_index
        table.scan.pruner:Pruner._in_index
        table.scan.pruner:Pruner.skipping
        table.scan.pruner:Pruner.verdicts
        table.scan.statistics:verdicts
        table.indexes.lookup:lookup_interval
        table.skipping.prune.plan:Skipping.may
        table.expressions.written:as_predicate
        table.expressions.parser:parse
        table.expressions.model:Predicate.bind
    """,
    "pull": """
        jobs.main:main
        jobs.main:perform
        jobs.sync:run
        jobs.sync:_pull
        odf.sync.pull:pull_remote
        odf.sync.pull:pull
        odf.sync.pull:_Step.came
        odf.sync.pull:_Step.bring
        odf.sync.pull:_Step._brought
        odf.sync.pull:_Step._require_sound
        odf.sync.pull:_Step._bring
        odf.sync.compare:compare
        odf.sync.transfer:bring_objects
        odf.sync.transfer:Staging.receive
        odf.sync.verified:Arriving.read
        odf.sync.smart.pulling:SmartRepository.head
        odf.sync.smart.pulling:SmartRepository.block
        odf.sync.smart.pulling:SmartRepository.stream
        odf.dataset.base:Ledger.follow
        odf.dataset.base:Ledger._commit
        odf.dataset.base:Ledger._committed
        odf.dataset.following:followed
        odf.validation.verification:verify_new
        table.log.transaction:Transaction.commit
        table.log.prepare.draft:draft
        table.log.journal:Journal.publish
        table.log.journal:Journal.swap
        jobs.state:state_of
        jobs.outcome:keep
        jobs.outcome:leave
        jobs.outcome:report_success
    """,
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Step(NamedTuple):
    """A function to open: its module without the name of the package, and its qualified name there."""

    module: str
    name: str
    is_entry: bool = False


def steps(journey: str) -> list[Step]:
    """Return the steps of a journey, in order."""
    found = []
    for number, line in enumerate(journey.strip().splitlines()):
        module, _, name = line.strip().removeprefix("* ").rpartition(":")
        found.append(Step(module, name, is_entry=number == 0 or line.strip().startswith("*")))
    return found


def modules(journey: Sequence[Step]) -> list[str]:
    """Return the modules of the steps, each once, in order."""
    return list(dict.fromkeys(step.module for step in journey))


# References, by the syntax tree.


@dataclass(frozen=True)
class Sources:
    """The syntax trees of a package."""

    package: Path
    _trees: dict[str, ast.Module] = field(default_factory=dict)

    def wrong(self, journey: Sequence[Step]) -> list[str]:
        """Return the steps that do not exist, or that no function of an earlier step names."""
        absent = [step for step in journey if self._function(step) is None]
        if absent:
            return [f"{step.module}:{step.name} does not exist" for step in absent]
        return [
            f"no earlier step names {step.module}:{step.name}"
            for number, step in enumerate(journey)
            if not step.is_entry and not any(self._names(before, step) for before in journey[:number])
        ]

    def purpose(self, module: str) -> str:
        """Return the first sentence of the docstring of a module."""
        text = (ast.get_docstring(self._tree(module)) or "").split("\n\n")[0]
        return " ".join(text.split()).removesuffix(".")

    def _tree(self, module: str) -> ast.Module:
        if module not in self._trees:
            path = self.package.joinpath(*module.split("."))
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            self._trees[module] = ast.parse(path.read_text() if path.exists() else "", str(path))
        return self._trees[module]

    def _function(self, step: Step) -> _Function | None:
        body: Sequence[ast.stmt] = self._tree(step.module).body
        *classes, name = step.name.split(".")
        for each in classes:
            body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == each), [])
        return next((node for node in body if isinstance(node, _Function) and node.name == name), None)

    def _names(self, before: Step, step: Step) -> bool:
        """Return whether the function of ``before`` names that of ``step``; a constructor by its class."""
        function, (owner, _, name) = self._function(before), step.name.rpartition(".")
        assert function is not None, "it exists"
        if name == "__init__":
            owner, name = "", owner
        return any(self._is(before.module, node, step.module, owner, name) for node in ast.walk(function))

    def _is(self, here: str, node: ast.AST, module: str, owner: str, name: str) -> bool:
        if isinstance(node, ast.Attribute) and node.attr == name:
            is_of_module = isinstance(node.value, ast.Name) and self._origin(here, node.value.id) == module
            return bool(owner) or is_of_module or not isinstance(node.value, ast.Name)
        return isinstance(node, ast.Name) and node.id == name and self._origin(here, name) == f"{module}.{name}"

    def _origin(self, module: str, name: str) -> str:
        """Return the module and name that a name in a module stands for, through packages that pass it on."""
        for node in ast.walk(self._tree(module)):
            if isinstance(node, ast.ImportFrom) and (source := node.module or "").startswith(f"{self.package.name}."):
                source = source.removeprefix(f"{self.package.name}.")
                for each in node.names:
                    if (each.asname or each.name) == name:
                        return self._origin(source, each.name)
        return f"{module}.{name}"


# Climbs, by the layers of import-linter.


def read_layers(contracts: Path) -> dict[str, list[list[str]]]:
    """Return for each package with layers its modules, uppermost layer first; names as in the file."""
    parser = ConfigParser()
    parser.read(contracts)
    found = {}
    for name in parser.sections():
        if parser[name].get("type") == "layers":
            lines = parser[name]["layers"].split("\n")
            found[parser[name]["containers"]] = [[part.strip() for part in line.split("|")] for line in lines if line]
    return found


def climbs(package: str, journey: Sequence[Step], layers: Mapping[str, list[list[str]]]) -> int:
    """Return how many steps are in a higher layer than the step before, by the layers of what both belong to."""
    return sum(_climbs(f"{package}.{a.module}", f"{package}.{b.module}", layers) for a, b in pairwise(journey))


def _climbs(before: str, after: str, layers: Mapping[str, list[list[str]]]) -> bool:
    here, there = before.split("."), after.split(".")
    shared = next((at for at, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
    if shared is None or (found := layers.get(".".join(here[:shared]))) is None:
        return False
    rank = {name: number for number, layer in enumerate(found) for name in layer}
    return rank[there[shared]] < rank[here[shared]]
