"""The journeys of a newcomer: each step exists, an earlier one names it, and they stay as short as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documented import ROOT
from tests.layout.journeys import JOURNEYS, Sources, Step, climbs, modules, read_layers, steps

CODE = ROOT / "operator" / "kubothek"
MOST_MODULES = {"Commit": 18, "Query": 23, "where=": 15, "pull": 15}
MOST_CLIMBS = {"Commit": 5, "Query": 5, "where=": 2, "pull": 1}


@pytest.mark.parametrize("name", JOURNEYS)
def test_journey_step_is_referenced_by_earlier_step(name: str) -> None:
    assert not Sources(CODE).wrong(steps(JOURNEYS[name]))


@pytest.mark.parametrize("name", JOURNEYS)
def test_journey_length_stays_within_limit(name: str) -> None:
    journey = steps(JOURNEYS[name])
    assert len(modules(journey)) <= MOST_MODULES[name]
    assert climbs("kubothek", journey, read_layers(ROOT / ".importlinter")) <= MOST_CLIMBS[name]


def test_journey_steps_without_definition_or_reference_are_reported(tmp_path: Path) -> None:
    package = tmp_path / "p"
    (package / "b").mkdir(parents=True)
    (package / "a.py").write_text("from p.b import made, other\ndef start():\n    made().run()\n")
    (package / "b" / "__init__.py").write_text("from p.b.c import made, other\n")
    (package / "b" / "c.py").write_text("class made:\n    def run(self): ...\ndef other(): ...\n")
    sources, start = Sources(package), Step("a", "start", is_entry=True)
    assert not sources.wrong([start, Step("b.c", "made.run")])
    assert sources.wrong([start, Step("b.c", "made.walk")]) == ["b.c:made.walk does not exist"]
    assert sources.wrong([start, Step("b.d", "made.run")]) == ["b.d:made.run does not exist"]
    assert sources.wrong([start, Step("b.c", "other")]) == ["no earlier step names b.c:other"]


def test_journey_climbs_are_counted_by_common_layers() -> None:
    layers = {"p": [["a"], ["b"]], "p.b": [["x", "y"], ["z"]]}
    journey = [Step(module, "f") for module in ("a", "b.z", "b.x", "b.y", "b.z", "a.q", "a.r")]
    assert climbs("p", journey, layers) == 2
