"""Print the requirements of the project: those it always has, then those of the extras named on the command line.

usage: requirements.py PYPROJECT [EXTRA...]

An image installs these first and the project itself last, so that a change of code changes only the last small layer.
"""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, extras: list[str]) -> list[str]:
    """The requirement lines of the project and of the given extras, in the order of the file."""
    project = tomllib.loads(pyproject.read_text())["project"]
    lines: list[str] = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return lines


if __name__ == "__main__":
    print("\n".join(requirements(Path(sys.argv[1]), sys.argv[2:])))
