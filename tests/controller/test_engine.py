"""An Engine is ready when it is valid."""

from __future__ import annotations

from tests.controller.fake import Fake


def test_valid_engine_is_ready_and_message_names_its_users() -> None:
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


def test_engine_with_disabled_reconcile_is_ignored() -> None:
    context = Fake()
    context.create("Engine", "default", {}, annotations={"kubothek.io/reconcile": "disabled"})
    assert context.reconcile("Engine", "default").status["conditions"] == []
