"""``${{ env.NAME }}`` in URLs and headers (FE-05), and values that must not show in messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

from kubothek.errors import InputError, LakeError

_TEMPLATE: Final = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_VARIABLE: Final = re.compile(r"\s*env\.([A-Za-z_][A-Za-z0-9_]*)\s*")


class Templates:
    """Fills in variables and remembers which, so that their values can be taken out of messages again."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._used: dict[str, str] = {}

    def filled(self, text: str) -> str:
        """The text with the values in it. Raises InputError for anything but a variable that is there."""
        return _TEMPLATE.sub(self._value, text)

    def variable(self, name: str) -> str:
        """The value of a variable. Raises InputError."""
        if name not in self._env:
            known = ", ".join(sorted(self._env)) or "none"
            raise InputError(f"the source needs variable {name!r}, which nobody gives it; there is {known}")
        self._used[name] = self._env[name]
        return self._env[name]

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Errors inside show the names of variables instead of their values."""
        try:
            yield
        except LakeError as error:
            text = self.without_values(str(error))
            if text == str(error):
                raise
            raise _same(error, text) from None

    def without_values(self, text: str) -> str:
        """The text with ``${{ env.NAME }}`` for each value that was used."""
        for name, value in sorted(self._used.items(), key=lambda each: -len(each[1])):
            shown = f"${{{{ env.{name} }}}}"
            spellings = {value, value.strip(), repr(value)[1:-1], quote(value, safe=""), quote(value)}
            for spelled in sorted(filter(None, spellings), key=len, reverse=True):
                text = re.sub(re.escape(spelled), shown, text, flags=re.IGNORECASE)  # as names of hosts are folded
        return text

    def _value(self, match: re.Match[str]) -> str:
        if not (found := _VARIABLE.fullmatch(match[1])):
            raise InputError(f"{match[0]!r} is not understood; write ${{{{ env.NAME }}}}")
        return self.variable(found[1])


def _same(error: LakeError, text: str) -> LakeError:
    """The same kind of error with other words; kinds that are made in other ways are passed on as their base."""
    try:
        return type(error)(text)
    except TypeError:
        return InputError(text)
