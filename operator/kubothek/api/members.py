"""Names of the parts of a cube, shared by Cube, Commit and Query."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import StringConstraints

PART_PATTERN = r"^[a-zA-Z0-9_\-]([a-zA-Z0-9_\-]|[+][a-zA-Z0-9_\-])*$"
"""Kartothek's pattern without ``+`` at the ends and ``++``, which would make ``<prefix>++<member>`` ambiguous."""
SEPARATOR = "++"
LONGEST_NAME = 64

PartName = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME, pattern=PART_PATTERN)]
"""The prefix of a cube, or the name of a dataset in it."""
CUBE_LABEL = "kubothek.io/cube"
"""Label of the Datasets that a Cube created: its name."""


def member_uuid(prefix: str, member: str) -> str:
    """Return Kartothek's name of the dataset: ``<prefix>++<member>``."""
    return f"{prefix}{SEPARATOR}{member}"


def head_uuid(prefix: str) -> str:
    """Return the UUID of the cube's head in a store; no dataset can have this name."""
    return f"{SEPARATOR}{prefix}"


def dataset_name(cube: str, member: str) -> str:
    """Return the name of a member's Dataset: ``<cube>-<member>`` in lower case, with ``-`` for invalid characters."""
    return f"{cube}-{re.sub('[_+]', '-', member.lower())}".rstrip("-")
