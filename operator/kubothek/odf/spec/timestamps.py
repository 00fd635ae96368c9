"""Times as the chain stores them: UTC, to the nanosecond."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, Self

from kubothek.errors import FormatInvalid

_STRUCT: Final = struct.Struct("<iH2xII")
_DAY: Final = 86_400
_EPOCH: Final = date(1970, 1, 1).toordinal()
_TEXT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)

SIZE: Final = _STRUCT.size
"""The size of the struct ``Timestamp`` of the FlatBuffers schema, in bytes."""


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """Nanoseconds since 1970 in UTC, leap seconds not counted; ``str()`` is RFC 3339 (MF-06)."""

    nanoseconds: int

    @classmethod
    def of(cls, moment: datetime) -> Self:
        """Convert an aware datetime. Raises FormatInvalid for a naive one."""
        if moment.tzinfo is None:
            raise FormatInvalid(f"time {moment.isoformat()} has no time zone; times in a chain are UTC")
        return cls((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse RFC 3339 text with any offset. Raises FormatInvalid."""
        if not (match := _TEXT.fullmatch(text)):
            raise FormatInvalid(f"{text[:100]!r} is no RFC 3339 time, as 2020-01-31T12:00:00Z")
        day, hours, minutes, seconds, fraction, sign, *offset = match.groups()
        try:
            days = date.fromisoformat(day).toordinal() - _EPOCH
        except ValueError as error:
            raise FormatInvalid(f"{text!r}: {error}") from None
        hour, minute, second, ahead = int(hours), int(minutes), int(seconds), 0
        if sign:
            ahead = (int(offset[0]) * 60 + int(offset[1])) * 60 * (-1 if sign == "-" else 1)
        if hour > 23 or minute > 59 or second > 59 or abs(ahead) >= _DAY:
            raise FormatInvalid(f"{text!r}: there is no such time of day")
        total = days * _DAY + (hour * 60 + minute) * 60 + second - ahead
        moment = cls(total * 10**9 + int((fraction or "0").ljust(9, "0")))
        moment._date()  # an offset can lead out of the years 1 to 9999
        return moment

    @classmethod
    def unpack(cls, data: bytes | memoryview, position: int) -> Self:
        """Decode the struct at a position, which must be inside. Raises FormatInvalid for an impossible time."""
        year, ordinal, seconds, nanoseconds = _STRUCT.unpack_from(data, position)
        days = 366 if year % 4 == 0 and (year % 100 or year % 400 == 0) else 365
        if not (1 <= year <= 9999 and 1 <= ordinal <= days and seconds < _DAY and nanoseconds < 10**9):
            raise FormatInvalid(f"year {year}, day {ordinal}, second {seconds}, nanosecond {nanoseconds} is no moment")
        day = date(year, 1, 1).toordinal() + ordinal - 1 - _EPOCH
        return cls((day * _DAY + seconds) * 10**9 + nanoseconds)

    def pack(self) -> bytes:
        """Encode the struct: year, day of the year from 1, seconds since midnight, nanoseconds."""
        day, (_, seconds, nanoseconds) = self._date(), self._parts()
        return _STRUCT.pack(day.year, day.timetuple().tm_yday, seconds, nanoseconds)

    def __str__(self) -> str:
        _, seconds, nanoseconds = self._parts()
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        fraction = f"{nanoseconds:09}"
        while fraction.endswith("000"):
            fraction = fraction[:-3]
        return f"{self._date().isoformat()}T{clock}{'.' if fraction else ''}{fraction}Z"

    def _parts(self) -> tuple[int, int, int]:
        total, nanoseconds = divmod(self.nanoseconds, 10**9)
        return *divmod(total, _DAY), nanoseconds

    def _date(self) -> date:
        try:
            return date.fromordinal(self._parts()[0] + _EPOCH)
        except (ValueError, OverflowError):
            raise FormatInvalid(f"a moment {self.nanoseconds} ns from 1970 is outside of the years 1 to 9999") from None
