"""What names the parts of a cube: shared by Cube, Commit and Query."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import StringConstraints

PART_PATTERN = r"^[a-zA-Z0-9_\-]([a-zA-Z0-9_\-]|[+][a-zA-Z0-9_\-])*$"
"""Kartothek's own, but for where a ``+`` would make ``<prefix>++<member>`` ambiguous: at the ends, and twice."""
SEPARATOR = "++"
LONGEST_NAME = 64

PartName = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME, pattern=PART_PATTERN)]
"""The prefix of a cube, or the name of a dataset in it."""
CUBE_LABEL = "kubothek.io/cube"
"""On the Datasets that a Cube made: its name."""


def member_uuid(prefix: str, member: str) -> str:
    """``<prefix>++<member>``, as Kartothek calls the dataset."""
    return f"{prefix}{SEPARATOR}{member}"


def head_uuid(prefix: str) -> str:
    """What stands for the cube itself among the datasets of a store; no dataset can be called so."""
    return f"{SEPARATOR}{prefix}"


def dataset_name(cube: str, member: str) -> str:
    """The name of a member's Dataset: ``<cube>-<member>``, with what a resource's name cannot have as ``-``."""
    return f"{cube}-{re.sub('[_+]', '-', member.lower())}".rstrip("-")
