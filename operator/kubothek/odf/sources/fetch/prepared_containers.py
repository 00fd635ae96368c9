"""Output of a container that ran before the poll, for runtimes in which only the cluster may start containers.

Three containers share two directories. :func:`lay_out` writes the *launcher*, which the source's container starts with
and can only read. It holds a shell with its loader and libraries, because the image may lack them. It also holds a
script, which sets the environment of the source's command and captures its standard output. In the poll,
:func:`ran_beforehand` returns what that container wrote.
"""

from __future__ import annotations

import re
import shutil
import subprocess  # lists the libraries of the shell
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Final

import orjson

from kubothek.errors import InputError, SourceChanged, SourceFailed
from kubothek.odf.sources.fetch.containers import check_container, open_left, read_output
from kubothek.odf.sources.fetch.context import ContainerOutput, ContainerRun
from kubothek.odf.sources.readers.content import FileContent

LOADER: Final = "ld.so"
SHELL: Final = "sh"
SCRIPT: Final = "run"
DATA: Final = "stdout"
_ASKED: Final = "asked"
_LIBRARY: Final = re.compile(r"^\s*(?:(?P<name>\S+) => )?(?P<path>/\S+) \(0x", re.MULTILINE)


def lay_out(asked: ContainerRun, launcher: Path, output: Path) -> None:
    """Write the launcher for a container that mounts both directories at the same paths, and whose command is
    ``ld.so --library-path <launcher> <launcher>/sh <launcher>/run``.

    Raises InputError for what a shell cannot run: no command, or variables that are not identifiers.
    """
    script = _script(asked, output)
    _copy_shell(launcher)
    (launcher / _ASKED).write_text(_digest(asked))
    (launcher / SCRIPT).touch(mode=0o600)  # it contains secrets
    (launcher / SCRIPT).write_text(script)


def ran_beforehand(launcher: Path, output: Path) -> Callable[[ContainerRun], ContainerOutput]:
    """Return a substitute for running a container: it returns what the container of this launcher wrote.

    Raises SourceChanged if the launcher was written for another request, which a retry resolves; SourceFailed if the
    standard output is missing.
    """

    def run(container: ContainerRun) -> ContainerOutput:
        if (launcher / _ASKED).read_text() != _digest(container):
            raise SourceChanged(
                f"while the container of image {container.image!r} ran, the chain or a variable that it had got "
                "changed: the next attempt gets the present one"
            )
        if (data := open_left(output, DATA)) is None:
            raise SourceFailed(f"the container of image {container.image!r} removed the file of its standard output")
        return read_output(FileContent(f"output of {container.image}", data), output)

    return run


def _script(asked: ContainerRun, output: Path) -> str:
    if not asked.command:
        raise InputError(f"fetch from image {asked.image!r}: give its command, as only the image knows its own")
    check_container(asked)
    words = (*asked.command, *(asked.args or ()))
    exports = "".join(f"export {name}={quote(value)}\n" for name, value in asked.env.items())
    return f"{exports}exec {' '.join(map(quote, words))} </dev/null >{quote(str(output / DATA))}\n"


def _copy_shell(launcher: Path) -> None:
    """Copy the shell of this image with its loader and libraries, so that it runs in any image, even an empty one."""
    shell = "/bin/sh"
    listed = subprocess.run(  # noqa: S603 - what ldd does
        [shell], env={"LD_TRACE_LOADED_OBJECTS": "1"}, stdin=subprocess.DEVNULL, capture_output=True, text=True
    ).stdout
    found = {match["name"] or LOADER: match["path"] for match in _LIBRARY.finditer(listed)}
    if LOADER not in found:
        raise InputError(f"{shell} of the job image cannot be lent to other images: use one made from Kubothek's own")
    for name, path in {**found, SHELL: shell}.items():
        shutil.copyfile(path, launcher / name)
        (launcher / name).chmod(0o500)


def _digest(asked: ContainerRun) -> str:
    parts = [asked.image, asked.command, asked.args, sorted(asked.env.items())]
    return sha256(orjson.dumps(parts)).hexdigest()
