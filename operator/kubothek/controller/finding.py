"""Result of an admission rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, where (for example ``spec.engineRef``), and what to do about it.

    ``reason``  the reason of the condition that a reconciler would set
    ``denies``  whether admission should reject the resource. False: the problem may resolve itself, as manifests are
                applied in any order, or the resource only does less than its author expects
    """

    reason: str
    path: str
    message: str
    denies: bool = True

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}: {self.message}"
