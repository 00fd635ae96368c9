"""How files of rows are read: shared by Commits and standing sources."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from kubothek.resources.meta import Strict
from kubothek.resources.rules import Rule

_Character = Annotated[str, StringConstraints(min_length=1, max_length=1)]

FileFormat = Literal["CSV", "JSONLines", "Parquet"]
Compression = Literal["Auto", "None", "Gzip", "Zip"]


class Csv(Strict):
    """How to read CSV."""

    delimiter: _Character = ","
    """What separates values."""
    quote: _Character = '"'
    """What encloses values that contain the delimiter or a line break."""
    header: bool = True
    """Whether the first line names the columns."""
    null_values: Annotated[tuple[Annotated[str, StringConstraints(max_length=64)], ...], Field(max_length=32)] = (
        "",
        "NA",
        "NULL",
        "null",
    )
    """What stands for a missing value."""


def file_rules(field: str = "") -> tuple[Rule, ...]:
    """What holds between `format`, `csv` and `compression` of a model; ``field`` is where it is, such as `source.`."""
    return (
        Rule(
            cel="!has(self.csv) || self.format == 'CSV'",
            message=f"{field}csv goes with format: CSV: remove it, or correct the format",
            holds=lambda self: self.csv is None or self.format == "CSV",
        ),
        Rule(
            cel="self.format != 'Parquet' || !(self.compression in ['Gzip', 'Zip'])",
            message=f"a Parquet file is compressed inside: remove {field}compression",
            holds=lambda self: self.format != "Parquet" or self.compression not in ("Gzip", "Zip"),
        ),
    )
