"""The bytes that arrow-digest hashes for texts of a dictionary, as Parquet has them: those of each are made once."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import InputError
from kubothek.odf.spec.digest_values import Bytes, encode, joined


class Entries:
    """The bytes of a dictionary's texts, for all arrays that share it."""

    def __init__(self, dictionary: Any) -> None:
        """``dictionary`` has no nulls."""
        self._dictionary = dictionary
        self._count = len(dictionary)
        self._encoded = encode(dictionary, None)
        self._width = self._encoded.offsets if isinstance(self._encoded.offsets, int) else 0

    def are_of(self, dictionary: Any) -> bool:
        """Whether they are those of this dictionary."""
        return bool(self._dictionary.equals(dictionary))

    def take(self, indices: Any) -> Bytes:
        """The bytes of these texts. Raises InputError for an index that the dictionary does not have."""
        if not indices.null_count:
            numbers = indices.to_numpy()
            self._check(numbers.min(initial=0), numbers.max(initial=-1))
            if self._width:
                return np.asarray(self._alike.take(numbers).view(np.uint8))
            return joined(pc.take(self._texts, indices, boundscheck=False))[0]
        ends: Any = pc.min_max(indices).as_py()
        self._check(ends["min"] or 0, -1 if ends["max"] is None else ends["max"])
        return joined(pc.take(self._texts, pc.fill_null(indices, self._count), boundscheck=False))[0]

    def _check(self, least: int, greatest: int) -> None:
        if least < 0 or greatest >= self._count:
            raise InputError(f"a dictionary of {self._count} texts has no number {least} or {greatest}")

    @cached_property
    def _alike(self) -> Any:
        return self._encoded.data.view(f"V{self._width}")

    @cached_property
    def _texts(self) -> Any:
        """With a null after the last."""
        return pa.concat_arrays([self._encoded.binary(self._count), pa.array([b"\0"], pa.large_binary())])
