"""Messages to and from engines, byte for byte: EN-12, EN-13, EN-15, EN-18, EN-19."""

from __future__ import annotations

from typing import Any

import pytest

from kubothek.errors import FormatInvalid
from kubothek.odf.spec import engine_messages
from kubothek.odf.spec.engine_messages import decode_message, encode_message
from kubothek.odf.spec.fields import Table
from kubothek.odf.spec.manifests import read_value
from tests.odf.vectors import VECTORS


@pytest.mark.requirement("EN-12", "EN-13", "EN-14", "EN-15", "EN-16", "EN-17", "EN-18", "EN-19")
@pytest.mark.parametrize("vector", VECTORS["engine_messages"], ids=lambda vector: vector["message"])
def test_engine_messages_are_read_and_written_byte_for_byte(vector: dict[str, Any]) -> None:
    kind, data = getattr(engine_messages, vector["message"]), bytes.fromhex(vector["hex"])
    message = read_value(Table(kind), vector["value"], vector["message"])
    assert decode_message(kind, data) == message
    assert encode_message(message) == data
    for length in range(0, len(data) - 8, 5):
        with pytest.raises(FormatInvalid):
            decode_message(kind, data[:length])
