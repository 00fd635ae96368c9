"""The versions of the specification of Open Data Fabric whose forms Kubothek writes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class SpecVersion(StrEnum):
    """A version; later ones compare greater."""

    V0_34 = "0.34"
    """Arrow schemas, manifests of version 2."""
    V0_35 = "0.35"
    """MQTT sources."""
    V0_36 = "0.36"
    """Ethereum logs."""
    V0_37 = "0.37"
    """ODF schemas of data, large files, UpsertStream and ChangelogStream."""
    V0_38 = "0.38"
    """ODF schemas of sources."""
    V0_39 = "0.39"
    """Resources."""


NEWEST: Final = SpecVersion.V0_39
"""The version of new chains."""
