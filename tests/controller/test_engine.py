"""An Engine is ready when it is valid."""

from __future__ import annotations

from tests.controller.fake import Fake


def test_a_valid_engine_is_ready_and_says_for_whom() -> None:
    world = Fake()
    world.create("Engine", "default", {})
    world.create("Engine", "big", {})
    for name in ("default", "big"):
        world.settle("Engine", name)
        assert world.condition("Engine", name) == ("True", "Succeeded")
    assert world.message("Engine", "default") != world.message("Engine", "big")
    world.edit("Engine", "big", image="other:1")
    world.settle("Engine", "big")
    assert world.kstatus("Engine", "big") == "Current"


def test_a_frozen_engine_is_left_alone() -> None:
    world = Fake()
    world.create("Engine", "default", {}, annotations={"kubothek.io/reconcile": "disabled"})
    assert world.reconcile("Engine", "default").status["conditions"] == []
