"""What reading a damaged file raises."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

DAMAGED: Final = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError)
"""What pyarrow raises for a damaged Parquet or Arrow file: besides its own errors, those of Python for names that are
not UTF-8, for missing columns and for values that no type holds. Each reader turns these into a named error."""
