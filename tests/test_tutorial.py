"""The notebook of the docs runs in a Jupyter kernel, and prints what it shows."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from tests.documented import ROOT

pytestmark = pytest.mark.slow


def test_tutorial_prints_shown_output() -> None:
    shown: Any = nbformat.read(ROOT / "docs" / "tutorial.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    run = deepcopy(shown)
    NotebookClient(run, timeout=300, km=AsyncKernelManager(transport="ipc")).execute()
    for cell, expected in zip(run.cells, shown.cells, strict=True):
        assert _printed(cell) == _printed(expected), cell.source


def _printed(cell: Any) -> list[str]:
    outputs = cell.get("outputs", [])
    return [each["text"] if each["output_type"] == "stream" else each["data"]["text/plain"] for each in outputs]
