"""``${{ env.NAME }}`` in URLs and headers (FE-05), and the redaction of its values in messages."""

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
    """Substitution of variables, which records them so that their values can be redacted from messages."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._used: dict[str, str] = {}

    def filled(self, text: str) -> str:
        """Return the text with all values substituted. Raises InputError for anything but a defined variable."""
        return _TEMPLATE.sub(self._value, text)

    def variable(self, name: str) -> str:
        """Return the value of a variable. Raises InputError."""
        if name not in self._env:
            known = ", ".join(sorted(self._env)) or "none"
            raise InputError(f"the source needs variable {name!r}, which is not set; variables that are set: {known}")
        self._used[name] = self._env[name]
        return self._env[name]

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Show names of variables in place of their values in errors raised inside."""
        try:
            yield
        except LakeError as error:
            text = self.without_values(str(error))
            if text == str(error):
                raise
            raise _same(error, text) from None

    def without_values(self, text: str) -> str:
        """Return the text with ``${{ env.NAME }}`` in place of each value that was used."""
        for name, value in sorted(self._used.items(), key=lambda each: -len(each[1])):
            shown = f"${{{{ env.{name} }}}}"
            spellings = {value, value.strip(), repr(value)[1:-1], quote(value, safe=""), quote(value)}
            for spelled in sorted(filter(None, spellings), key=len, reverse=True):
                text = re.sub(re.escape(spelled), shown, text, flags=re.IGNORECASE)  # host names are case-folded
        return text

    def _value(self, match: re.Match[str]) -> str:
        if not (found := _VARIABLE.fullmatch(match[1])):
            raise InputError(f"{match[0]!r} is not understood; write ${{{{ env.NAME }}}}")
        return self.variable(found[1])


def _same(error: LakeError, text: str) -> LakeError:
    """Return the same kind of error with another text; InputError for kinds with other constructors."""
    try:
        return type(error)(text)
    except TypeError:
        return InputError(text)
