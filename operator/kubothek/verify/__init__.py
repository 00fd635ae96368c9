"""Verification: check whether a bucket holds what was committed. See docs/verification.md."""

from __future__ import annotations

from kubothek.verify.damage import Damage, keep_damage, known_damage
from kubothek.verify.datasets import DatasetVerdict, Since, verify_dataset
from kubothek.verify.finding import Finding

__all__ = ["Damage", "DatasetVerdict", "Finding", "Since", "keep_damage", "known_damage", "verify_dataset"]
