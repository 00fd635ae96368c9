"""Bearer tokens of the user, by server, in one file that only the user can read."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import click

_SMART = "odf+"


def origin_of(url: str) -> str:
    """Return ``https://host:port`` of a URL, the scope of a token. Raises click.UsageError."""
    parts = urlsplit(url.removeprefix(_SMART))
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.username is not None:
        raise click.UsageError(f"{url!r} is not a server URL: write https://host or https://host:port")
    usual = {"http": 80, "https": 443}[parts.scheme]
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port in (None, usual) else f":{port}")


def token_for(url: str) -> str | None:
    """Return the token stored for the server of a URL; None if there is none."""
    if not url.removeprefix(_SMART).startswith(("http://", "https://")):
        return None
    return _read().get(origin_of(url))


def keep_token(url: str, token: str) -> None:
    """Store the token of a server, and replace an earlier one."""
    _write({**_read(), origin_of(url): token})


def forget_tokens(url: str | None) -> int:
    """Delete the token of a server, None = all tokens; return how many there were."""
    found = _read()
    forgotten = [origin for origin in found if url is None or origin == origin_of(url)]
    _write({origin: token for origin, token in found.items() if origin not in forgotten})
    return len(forgotten)


def _path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "kubothek" / "tokens.json"


def _read() -> dict[str, str]:
    path = _path()
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError:
        raise click.ClickException(f"{path} is damaged: remove it, and log in again") from None
    if not isinstance(found, dict):
        raise click.ClickException(f"{path} is damaged: remove it, and log in again")
    return {str(origin): str(token) for origin, token in found.items()}


def _write(tokens: Mapping[str, str]) -> None:
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(tokens, file, indent=1)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
