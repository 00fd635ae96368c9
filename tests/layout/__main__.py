"""Print figures of the source tree, to compare before and after a change: ``python -m tests.layout [DIRECTORY]``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.layout.figures import Tree, figures
from tests.layout.journeys import JOURNEYS, climbs, modules, read_layers, steps

directory = Path(sys.argv[1] if len(sys.argv) > 1 else "operator/kubothek")
for name, figure in figures(Tree.read(directory)).items():
    print(f"{name:<58} {figure:>8,}")
layers = read_layers(Path(".importlinter"))
for name, text in JOURNEYS.items():
    journey = steps(text)
    count = f"{len(modules(journey))} modules, {climbs(directory.name, journey, layers)} climbs"
    print(f"{f'journey {name}':<58} {count:>8}")
