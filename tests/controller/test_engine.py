"""An Engine is ready when it is valid."""

from __future__ import annotations

from tests.controller.fake import Fake


def test_a_valid_engine_is_ready_and_says_for_whom() -> None:
    context = Fake()
    context.create("Engine", "default", {})
    context.create("Engine", "big", {})
    for name in ("default", "big"):
        context.settle("Engine", name)
        assert context.condition("Engine", name) == ("True", "Succeeded")
    assert context.message("Engine", "default") != context.message("Engine", "big")
    context.edit("Engine", "big", image="other:1")
    context.settle("Engine", "big")
    assert context.kstatus("Engine", "big") == "Current"


def test_a_frozen_engine_is_left_alone() -> None:
    context = Fake()
    context.create("Engine", "default", {}, annotations={"kubothek.io/reconcile": "disabled"})
    assert context.reconcile("Engine", "default").status["conditions"] == []
