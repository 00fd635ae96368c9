"""Commands that a source runs on this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from tempfile import TemporaryFile
from threading import Thread
from typing import IO, Final

from kubothek.errors import SourceFailed
from kubothek.odf.sources.readers.content import Content, FileContent

_PIECE: Final = 1 << 20
_SHOWN: Final = 500


def piped(command: Sequence[str], content: Content, limit: int) -> FileContent:
    """Return what the command writes for this input. It runs without a shell and without this process's environment.

    Raises SourceFailed if it cannot be run or ends with an error, SourceRefused if it writes more than ``limit`` bytes.
    """
    with TemporaryFile() as said:
        try:
            process = subprocess.Popen(  # noqa: S603 - the user allowed it
                list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env={"PATH": _PATH}
            )
        except OSError as error:
            raise SourceFailed(f"prepare: {command[0]!r} cannot be run: {error.strerror}") from None
        assert process.stdin is not None
        assert process.stdout is not None
        problems: list[Exception] = []
        feeder = Thread(target=_feed, args=(content, process.stdin, problems), daemon=True)
        feeder.start()
        try:
            found = FileContent.filled(content.name, process.stdout, limit)
        finally:
            process.stdout.close()
            if process.poll() is None and not _ends(process):
                process.kill()
            process.wait()
            feeder.join()
        if problems:
            raise problems[0]
        if process.returncode:
            raise SourceFailed(f"prepare: {' '.join(command)!r} ended with {process.returncode}: {tail_of(said)}")
    return found


def _ends(process: subprocess.Popen[bytes]) -> bool:
    """Return whether it exits within 5 s of the end of its output."""
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return False
    return True


def _feed(content: Content, stdin: IO[bytes], problems: list[Exception]) -> None:
    try:
        with stdin, content.open() as source:
            while piece := source.read(_PIECE):
                stdin.write(piece)
    except BrokenPipeError:
        pass  # a command may exit before the end of its input, as `head` does
    except Exception as error:  # noqa: BLE001 - the caller raises it
        problems.append(error)


def tail_of(said: IO[bytes]) -> str:
    """Return the last bytes that a process wrote to standard error."""
    size = said.seek(0, 2)
    said.seek(max(0, size - _SHOWN))
    return said.read().decode(errors="replace").strip() or "it said nothing"


_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
