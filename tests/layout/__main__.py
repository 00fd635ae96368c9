"""Print figures of the source tree, to compare before and after a change: ``python -m tests.layout [DIRECTORY]``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.layout.figures import Tree, figures

directory = Path(sys.argv[1] if len(sys.argv) > 1 else "operator/kubothek")
for name, figure in figures(Tree.read(directory)).items():
    print(f"{name:<58} {figure:>8,}")
