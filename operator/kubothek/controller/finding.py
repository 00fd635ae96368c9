"""One thing that a rule of admission found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, where (``spec.engineRef``), and what to do about it.

    ``reason``  that of the condition which a reconciler would set
    ``denies``  whether the resource should not be taken. False: it may yet come right by itself, as manifests are
                applied in any order, or it only does less than its author thinks
    """

    reason: str
    path: str
    message: str
    denies: bool = True

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}: {self.message}"
