"""Secrets of the manifests as directories that jobs can read, for the duration of one run."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from secrets import token_bytes
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from kubothek.api.ledger import IDENTITY_KEY
from kubothek.api.meta import ObjectMeta

_Key = Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]*[-_a-zA-Z0-9]$", max_length=253)]


def _decode(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except ValueError:
        raise ValueError("is not base64; put plain text into stringData") from None


class Secret(BaseModel):
    """Core Secret, limited to the fields that hold credentials."""

    metadata: ObjectMeta
    data: dict[_Key, Annotated[bytes, BeforeValidator(_decode)]] = {}
    string_data: Annotated[dict[_Key, str], Field(alias="stringData")] = {}

    @property
    def contents(self) -> dict[str, bytes]:
        """All values, decoded."""
        return self.data | {key: text.encode() for key, text in self.string_data.items()}


def make_identity(directory: Path) -> None:
    """Write a new private key for a dataset to a file that only this user can read; keep an existing one."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / IDENTITY_KEY
    if path.exists():
        return
    unfinished = path.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(token_bytes(32))
    unfinished.replace(path)


class CredentialFiles(AbstractContextManager[Path]):
    """Contents of a Secret in a directory that only this user can read, deleted at the end of the context."""

    def __init__(self, directory: Path, contents: Mapping[str, bytes]) -> None:
        self._directory = directory
        self._contents = contents

    def __enter__(self) -> Path:
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(mode=0o700, parents=True)
        for name, value in self._contents.items():
            (self._directory / name).write_bytes(value)
        return self._directory

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
