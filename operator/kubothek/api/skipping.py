"""Data skipping: metadata of each data file, by which queries open only files that can match."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.meta import Lenient, Strict, Time
from kubothek.api.rules import Rule
from kubothek.api.values import ColumnName

SkippingType = Literal["MinMax", "ValueList", "BloomFilter", "Prefix", "Suffix", "TokenList", "GeometryBox"]

KeyLabel = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-zA-Z0-9]([-a-zA-Z0-9_.]*)$")]
DEFAULT_LENGTH = 8
"""Default length of prefixes and suffixes, in characters."""
MOST_INDICES = 32
RECENT_QUERIES = 32
"""Maximum number of queries in a status."""


class ColumnIndex(Strict):
    """Metadata of one column for each file. docs/skipping.md compares the types."""

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
    strings and integers. These three are those of Xskipper. Prefix, Suffix: the distinct beginnings or ends of strings.
    TokenList: the distinct words of strings. GeometryBox: the box around points or geometries."""
    column: ColumnName
    """The column; a field of a struct is written `address.city`. For a GeometryBox: the column with the geometry as
    WKB, or with the x coordinate if there is a `yColumn`."""
    y_column: ColumnName | None = None
    """The column with the y coordinate of a GeometryBox over two columns of numbers."""
    ndv: Annotated[int, Field(ge=1, le=10000000)] | None = None
    """Expected distinct values of a file, for which a BloomFilter is sized; default: the actual number of each file."""
    fpp: Annotated[str, StringConstraints(max_length=12, pattern=r"^0\.[0-9]{1,9}$")] | None = None
    """The false-positive probability of a BloomFilter; default: so small that a query for one value opens hardly any
    extra file, regardless of the number of files."""
    length: Annotated[int, Field(ge=1, le=64)] | None = None
    """Number of characters of a Prefix or a Suffix; default: 8."""
    key: KeyLabel | None = None
    """The name of the key that encrypts this index, of those in ObjectStore.spec.keysSecretRef."""


class Skipping(Strict):
    """The skipping metadata of each data file."""

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
    """Choose further indices by the values of the table and the filters of recent queries; docs/skipping.md has the
    rule. Chosen indices stay until `skipping` is edited."""
    indices: Annotated[tuple[ColumnIndex, ...], Field(max_length=MOST_INDICES)] = ()
    """The explicit indices."""
    footer_key: KeyLabel | None = None
    """The name of the key that encrypts the footers and the names of the files, of those in
    ObjectStore.spec.keysSecretRef. Without it nothing is encrypted."""
    plaintext_footer: bool = False
    """Leave the footers readable to programs without the key: they see which indices exist, but no values."""


class ColumnIndexStatus(Lenient):
    """An existing skipping index."""

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
    """The existing indices: those of the manifest, and those that `auto` chose."""
    footer_key: str | None = None
    """The name of the key that encrypts the footers and the names of the files."""
    plaintext_footer: bool = False
    """Whether the footers are readable without it."""
    files: int = 0
    """Number of data files with metadata; the others are always opened."""
    coverage: str | None = None
    """The share of the data files with metadata, human-readable."""
    bytes: int = 0
    """The size of the metadata."""


class QueryUse(Lenient):
    """The effect of the metadata on one query."""

    query: str
    """The Query."""
    time: Time
    """When it was complete."""
    considered: int = 0
    """Files on which skipping decided, after pruning by partitions and secondary indices."""
    skipped: int = 0
    """Number of these files that were not opened."""
    filters: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """Its filters: `column:Equal`, `column:Range` …"""


class SkippingAchieved(Lenient):
    """The effect of the metadata on recent Queries."""

    queries: int = 0
    """Number of queries with files on which skipping decided."""
    considered: int = 0
    """Number of these files."""
    skipped: int = 0
    """Number of these files that were not opened."""
    share: str | None = None
    """The share of files that were not opened, human-readable."""
    recent: Annotated[tuple[QueryUse, ...], Field(max_length=RECENT_QUERIES)] = ()
    """The queries, newest first."""
