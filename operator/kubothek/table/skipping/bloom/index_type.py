"""The index type BloomFilter (Spark's ``BloomFilterImpl`` and Murmur3_x86_32), built in one pass and bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from kubothek.errors import SkippingInvalid
from kubothek.table.skipping.bloom import sketch
from kubothek.table.skipping.bloom.binary import render
from kubothek.table.skipping.indexes import Collector, IndexType, Values, refuse, register
from kubothek.table.skipping.kinds import check_column, entry_value_type
from kubothek.table.skipping.model import IndexDefinition

FPP: Final = 0.01
NDV: Final = 100_000
"""Xskipper's own defaults."""
_HELD: Final = 1 << 21
"""Values whose hashes are kept until the size of their filter is known: 16 MiB. If more than half of them are distinct,
a filter is started, which has the requested precision for twice the values so far, and less for more."""
_SAMPLE: Final = 1 << 12
_VARIED: Final = 1 / 4
"""If this share of a sample is distinct, deduplication costs more than hashing all values."""
_SPARE: Final = 1.02
"""Margin for the error of the estimated number of values."""


@dataclass(frozen=True, slots=True)
class BloomParams:
    """``fpp``: the false-positive probability; ``ndv``: the maximum number of distinct values in a file.

    Without ``ndv`` each filter has the size that the file's values need; with it, exactly the size that Xskipper
    chooses, whatever the file.
    """

    fpp: float
    ndv: int | None

    FOREIGN: ClassVar = ("io.xskipper.index.bloom.fpp", "io.xskipper.index.bloom.ndv")

    @classmethod
    def of(cls, definition: IndexDefinition, fpp: float = FPP) -> BloomParams:
        """Return the parameters of a definition. Raise SkippingInvalid for invalid ones."""
        found = {name.rpartition(".")[2]: text for name, text in definition.params.items()}
        try:
            params = cls(float(found.get("fpp", fpp)), int(found["ndv"]) if "ndv" in found else None)
        except ValueError as error:
            raise SkippingInvalid(f"fpp and ndv are numbers, not {dict(definition.params)}") from error
        if not 0 < params.fpp < 1:
            raise SkippingInvalid(f"fpp {params.fpp} is not between 0 and 1")
        if params.ndv is not None and not 0 < params.ndv <= 1 << 30:
            raise SkippingInvalid(f"ndv {params.ndv} is not between 1 and {1 << 30}")
        return params

    def to_xskipper(self) -> dict[str, str]:
        """Return the parameters as Xskipper stores them, always both."""
        return {self.FOREIGN[1]: str(self.ndv or NDV), self.FOREIGN[0]: repr(self.fpp)}


class BloomFilter(IndexType):
    """A Bloom filter of all values of a file."""

    name = "BloomFilter"
    foreign = True

    def check(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> None:
        check_column(definition, types, BloomParams.FOREIGN)
        BloomParams.of(definition)
        if not sketch.can_hash(entry_value_type(types[0]) or types[0]):
            raise refuse(types[0], instead="; whole numbers and text can")

    def entry_type(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> pa.DataType:
        return pa.binary()

    def collector(self, definition: IndexDefinition, types: Sequence[pa.DataType], fpp: float = FPP) -> Collector:
        return _Filter(BloomParams.of(definition, fpp), entry_value_type(types[0]) or types[0])


class _Filter:
    """The hashes of the values while they are few, then the bits of a filter of the largest size."""

    def __init__(self, params: BloomParams, value_type: pa.DataType) -> None:
        self._params = params
        self._type = value_type
        self._held: list[Any] = []
        self._count = 0
        self._bits: sketch.Bits | None = None
        self._hashes = 0
        self._too_long = False
        if params.ndv is not None:
            self._start(sketch.spark_sizing(params.ndv, params.fpp))

    def update(self, values: Sequence[Values]) -> None:
        new = values[0].array.drop_null() if _is_varied(values[0].array) else values[0].unique
        found = sketch.pairs(new if new.type == self._type else new.cast(self._type))
        if found is None or self._too_long:
            self._too_long = True
        elif self._bits is not None:
            sketch.fill(self._bits, found, self._hashes)
        else:
            self._held.append(found.packed())
            self._count += len(found.first)
            if self._count > _HELD:
                self._held = [sketch.distinct(np.concatenate(self._held))]
                self._count = len(self._held[0])
                if self._count > _HELD // 2:
                    self._start(_foldable(sketch.lean_sizing(2 * self._count, self._params.fpp)))

    def finish(self) -> pa.Array[Any] | None:
        if self._too_long:
            return None
        if self._bits is None:
            found = np.concatenate(self._held) if self._held else np.zeros(0, np.uint64)
            count = sketch.count_distinct(found)
            self._held = [sketch.distinct(found) if 2 * count < len(found) else found]
            self._start(sketch.lean_sizing(int(_SPARE * count), self._params.fpp))
        elif self._params.ndv is None:
            self._bits = sketch.folded(self._bits, self._hashes, self._params.fpp)
        assert self._bits is not None, "started above"
        return pa.array([render(self._bits, self._hashes)], pa.binary())

    def _start(self, sizing: sketch.Sizing) -> None:
        self._hashes, self._bits = sizing.hashes, np.zeros(64 * sizing.words, np.bool_)
        for found in self._held:
            sketch.fill(self._bits, sketch.unpacked(found), self._hashes)
        self._held.clear()


def _is_varied(array: pa.Array[Any]) -> bool:
    sample = array.slice(0, _SAMPLE)
    return len(sample.unique()) > _VARIED * len(sample)


def _foldable(sizing: sketch.Sizing) -> sketch.Sizing:
    """Return the size rounded up, so that it can be halved several times."""
    return sizing._replace(words=-(-sizing.words // 64) * 64)


register(BloomFilter())
