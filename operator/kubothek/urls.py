"""URLs of stores and files as users write them: one rule for Python, the command line and manifests."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def absolute_url(text: str, base: Path) -> str:
    """Return the absolute URL of a store or a file as users write it; relative paths start at ``base``.

    ``file:rel``, ``file:/path`` and paths without a scheme become ``file:///absolute/path``; others stay as they are.
    """
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(os.path.normpath(base / Path(text).expanduser())).as_uri() if text else text
    parts = urlsplit(text)
    if scheme[1].lower() != "file" or parts.netloc:
        return text
    return Path(os.path.normpath(base / unquote(parts.path))).as_uri()
