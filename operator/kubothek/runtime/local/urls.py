"""Urls as a person writes them on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit


def absolute_url(url: str, base: Path) -> str:
    """A ``file:relative`` or ``file:/path`` url as ``file:///absolute/path``; others as they are."""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc:
        return url
    return Path(os.path.normpath(base / unquote(parts.path))).as_uri()
