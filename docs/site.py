"""Hook of MkDocs: what GitHub shows in a page, and MkDocs does not, is rewritten before MkDocs renders the page."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[1]
_FENCE: Final = re.compile(r"^( *```[\w-]+) [^`\n]+$", re.MULTILINE)
_LINK: Final = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Return the page's text in the form that MkDocs renders.

    Links to directories and to files outside ``docs/`` become URLs of the repository. Fenced code keeps its language
    only: tests read further words, such as ``part=Query``.
    """
    folder = posixpath.dirname(page.file.src_uri)

    def absolute(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, match[2]))
        target = _ROOT / path
        if (path.startswith("docs/") and not target.is_dir()) or not target.exists():
            return match[0]
        return f"{match[1]}{config.repo_url}/{'tree' if target.is_dir() else 'blob'}/main/{path}"

    return _LINK.sub(absolute, _FENCE.sub(r"\1", markdown))
