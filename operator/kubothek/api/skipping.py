"""Data skipping: what is kept of each data file, so that queries open only those that can hold a match."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.meta import Lenient, Strict, Time
from kubothek.api.rules import Rule
from kubothek.api.values import ColumnName

SkippingType = Literal["MinMax", "ValueList", "BloomFilter", "Prefix", "Suffix", "TokenList", "GeometryBox"]
FilterKind = Literal["Equal", "Range", "Prefix", "Suffix", "Contains", "Box"]

KeyLabel = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-zA-Z0-9]([-a-zA-Z0-9_.]*)$")]
DEFAULT_LENGTH = 8
"""Of prefixes and suffixes."""
MOST_INDICES = 32
RECENT_QUERIES = 32
"""How many queries a status remembers."""


class ColumnIndex(Strict):
    """What is kept of one column for each file. docs/skipping.md says which type is for what."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.type == 'BloomFilter' || (!has(self.ndv) && !has(self.fpp))",
            message="ndv and fpp go with type: BloomFilter: remove them, or correct the type",
            holds=lambda self: self.type == "BloomFilter" or (self.ndv, self.fpp) == (None, None),
        ),
        Rule(
            cel="self.type in ['Prefix', 'Suffix'] || !has(self.length)",
            message="length goes with type: Prefix or Suffix: remove it, or correct the type",
            holds=lambda self: self.type in ("Prefix", "Suffix") or self.length is None,
        ),
        Rule(
            cel="self.type == 'GeometryBox' || !has(self.yColumn)",
            message="yColumn goes with type: GeometryBox: remove it, or correct the type",
            holds=lambda self: self.type == "GeometryBox" or self.y_column is None,
        ),
    )

    type: SkippingType
    """MinMax: the smallest and the largest value. ValueList: all values. BloomFilter: a filter over the values, of
    strings and integers. These three are Xskipper's. Prefix, Suffix: the distinct beginnings or ends of strings.
    TokenList: the distinct words of strings. GeometryBox: the box around points or geometries."""
    column: ColumnName
    """The column; a field of a struct is written `address.city`. Of a GeometryBox: the one with the geometry as WKB, or
    with the x coordinate if there is a `yColumn`."""
    y_column: ColumnName | None = None
    """The column with the y coordinate of a GeometryBox over two columns of numbers."""
    ndv: Annotated[int, Field(ge=1, le=10000000)] | None = None
    """For how many distinct values of a file a BloomFilter is made; default: for as many as each file has."""
    fpp: Annotated[str, StringConstraints(max_length=12, pattern=r"^0\.[0-9]{1,9}$")] | None = None
    """How often a BloomFilter may say "perhaps" to a value that the file does not have; default: so seldom that a query
    for one value opens hardly a file too many, however many files there are."""
    length: Annotated[int, Field(ge=1, le=64)] | None = None
    """How many characters of a string a Prefix or a Suffix has; default: 8."""
    key: KeyLabel | None = None
    """The name of the key that encrypts this index, of those in ObjectStore.spec.keysSecretRef."""


class Skipping(Strict):
    """What is kept of each data file."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.indices) || self.indices.all(i, self.indices.exists_one(o, o.type == i.type && "
            "o.column == i.column && (has(o.yColumn) ? o.yColumn : '') == (has(i.yColumn) ? i.yColumn : '')))",
            message="skipping.indices has a type twice for the same column: remove one",
            holds=lambda self: len({(i.type, i.column, i.y_column) for i in self.indices}) == len(self.indices),
        ),
        Rule(
            cel="has(self.footerKey) || ((!has(self.plaintextFooter) || !self.plaintextFooter) && "
            "(!has(self.indices) || self.indices.all(i, !has(i.key))))",
            message="an encrypted index needs skipping.footerKey, which encrypts the names of the files: set it",
            holds=lambda self: (
                self.footer_key is not None
                or (not self.plaintext_footer and all(index.key is None for index in self.indices))
            ),
        ),
    )

    auto: bool = False
    """Choose further indices from the values of the table and the filters of recent queries, by the rule in
    docs/skipping.md. What was chosen stays until `skipping` is edited."""
    indices: Annotated[tuple[ColumnIndex, ...], Field(max_length=MOST_INDICES)] = ()
    """The indices that the table has in any case."""
    footer_key: KeyLabel | None = None
    """The name of the key that encrypts the footers and the names of the files, of those in
    ObjectStore.spec.keysSecretRef. Without it nothing is encrypted."""
    plaintext_footer: bool = False
    """Leave the footers readable to programs without the key: they see which indices there are, and no values."""


class ColumnIndexStatus(Lenient):
    """A skipping index that there is."""

    type: str
    """Its type."""
    columns: Annotated[tuple[str, ...], Field(max_length=2)] = ()
    """Its column, or the two of a GeometryBox."""
    params: dict[str, str] = Field(default_factory=dict)
    """Its `ndv`, `fpp` or `length`."""
    key: str | None = None
    """The name of the key that encrypts it."""


class SkippingStatus(Lenient):
    """The skipping metadata of a table."""

    indices: Annotated[tuple[ColumnIndexStatus, ...], Field(max_length=2 * MOST_INDICES)] = ()
    """The indices that there are: those of the manifest, and those that `auto` chose."""
    footer_key: str | None = None
    """The name of the key that encrypts the footers and the names of the files."""
    plaintext_footer: bool = False
    """Whether the footers are readable without it."""
    files: int = 0
    """Number of data files that are described; the others are always opened."""
    coverage: str | None = None
    """The share of the data files that are described, for people."""
    bytes: int = 0
    """The size of the metadata."""


class QueryUse(Lenient):
    """What one query had of the metadata."""

    query: str
    """The Query."""
    time: Time
    """When it was complete."""
    considered: int = 0
    """Files that were left for skipping to decide about, after partitions and secondary indices had been asked."""
    skipped: int = 0
    """How many of them were not opened."""
    filters: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """What it filtered by: `column:Equal`, `column:Range` …"""


class SkippingAchieved(Lenient):
    """What recent Queries had of the metadata."""

    queries: int = 0
    """How many of them left files for skipping to decide about."""
    considered: int = 0
    """How many files those were."""
    skipped: int = 0
    """How many of them were not opened."""
    share: str | None = None
    """The share of them, for people."""
    recent: Annotated[tuple[QueryUse, ...], Field(max_length=RECENT_QUERIES)] = ()
    """The queries, newest first."""
