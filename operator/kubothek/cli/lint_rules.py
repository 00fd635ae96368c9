"""All rules for manifests in files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kubothek.cli.statements import wrong_statements
from kubothek.controller.validation.resource_set import Gathered
from kubothek.controller.validation.rules import findings
from kubothek.local.documents import ManifestError
from kubothek.local.manifests import Key, Manifests, read


@dataclass(frozen=True, slots=True)
class Mistake:
    """One error or warning: where it is, and what to do."""

    level: Literal["error", "warning"]
    where: str
    """``file`` or ``file:line``"""
    path: str
    reason: str
    message: str
    """With kind and name of the resource, and the path of the field."""

    @property
    def file(self) -> str:
        """The file, without the line."""
        return re.sub(r":\d+$", "", self.where)

    @property
    def line(self) -> int | None:
        """The line, from 1; None if it is about the file."""
        found = re.search(r":(\d+)$", self.where)
        return int(found[1]) if found else None


def check(paths: Sequence[Path]) -> tuple[list[Key], list[Mistake]]:
    """Return the resources that are valid by themselves, and all errors and warnings.

    Warnings are left out while a manifest cannot be read: a missing resource may be in it.
    """
    try:
        manifests, problems = read(paths, others=True)
    except ManifestError as error:
        return [], [Mistake("error", problem.where, "", "InvalidSpec", problem.message) for problem in error.problems]
    mistakes = [Mistake("error", each.where, each.path, "InvalidSpec", each.message) for each in problems]
    together = [mistake for mistake in _together(manifests) if mistake.level == "error" or not problems]
    if not manifests.resources and not mistakes:
        where = " ".join(map(str, paths))
        mistakes.append(Mistake("error", where, "", "InvalidSpec", "no Kubothek manifests found"))
    return list(manifests.resources), [*mistakes, *sorted(together, key=lambda each: each.level)]


def _together(manifests: Manifests) -> Iterator[Mistake]:
    there = Gathered(manifests.resources.values(), manifests.bounds)
    for key, resource in manifests.resources.items():
        label = f"{key.kind} {key.name}"
        for path, why in wrong_statements(resource):
            reason = why.partition(":")[0]
            yield Mistake("error", manifests.where(key, path), path, reason, f"{label}: {path}: {why}")
        for found in findings(resource, there):
            where = manifests.where(key, found.path)
            level: Literal["error", "warning"] = "error" if found.denies else "warning"
            yield Mistake(level, where, found.path, found.reason, f"{label}: {found}")
