"""The fetch step for containers (FE-03, FE-10)."""

from __future__ import annotations

import re
import shutil
import subprocess  # runs docker
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Final

from kubothek.errors import InputError, SourceFailed, SourceRefused
from kubothek.odf.plain_files import NotPlain, open_plain
from kubothek.odf.sources.fetch.context import (
    ETAG,
    LAST_MODIFIED,
    ContainerOutput,
    ContainerRun,
    FetchContext,
    File,
    UpToDate,
    state_of,
)
from kubothek.odf.sources.fetch.event_times import to_milliseconds
from kubothek.odf.sources.fetch.processes import tail_of
from kubothek.odf.sources.fetch.templates import Templates
from kubothek.odf.sources.readers.content import FileContent
from kubothek.odf.spec.events import SourceState
from kubothek.odf.spec.sources import EnvVar, FetchStepContainer
from kubothek.odf.spec.timestamps import Timestamp

OUT: Final = "/opt/odf/out"
NEW_ETAG: Final = "new-etag"
NEW_LAST_MODIFIED: Final = "new-last-modified"
HAS_MORE: Final = "has-more"
_TEXT_LIMIT: Final = 64 << 10
_BATCH_SIZE: Final = "10000"
_ASKED: Final = {ETAG: "ODF_ETAG", LAST_MODIFIED: "ODF_LAST_MODIFIED"}
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST: Final = r"(?:[a-zA-Z0-9.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PART: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
IMAGE: Final = re.compile(
    rf"(?P<repository>(?:{_HOST}/)?{_PART}(?:/{_PART})*)(?P<version>(?::[a-zA-Z0-9_][a-zA-Z0-9._-]*)?(?:@[a-z0-9]+:[0-9a-f]+)?)"
)
"""An image reference. The control plane has the same pattern for its list of allowed images."""


def fetch_from_container(
    step: FetchStepContainer, state: SourceState | None, context: FetchContext, templates: Templates
) -> File | UpToDate:
    """Return the output of the container; UpToDate if it is empty, with neither a new state nor more data.

    A state that the container does not renew is kept. Raises SourceRefused, SourceFailed, InputError (variables).
    """
    if context.run_container is None:
        raise SourceRefused(f"fetch from image {step.image!r}: containers are not allowed here")
    output = context.run_container(container_run(step, state, templates))
    new = _new_state(output)
    if output.data.is_empty() and (new is None or new == state) and not output.has_more:
        return UpToDate()
    return File(
        content=output.data,
        state=new or state,
        event_time=to_milliseconds(context.now),
        has_more=output.has_more,
    )


def container_run(step: FetchStepContainer, state: SourceState | None, templates: Templates) -> ContainerRun:
    """Return the container that fetches what is new since ``state``. Raises InputError for undefined variables."""
    env = container_env(step.env or (), state, templates)
    return ContainerRun(image=step.image, command=step.command, args=step.args, env=env)


def container_env(variables: tuple[EnvVar, ...], state: SourceState | None, templates: Templates) -> Mapping[str, str]:
    """Return the whole environment: the protocol's variables override the manifest's, except for the batch size."""
    own = {each.name: templates.variable(each.name) if each.value is None else each.value for each in variables}
    protocol = {
        "ODF_NEW_ETAG_PATH": f"{OUT}/{NEW_ETAG}",
        "ODF_NEW_LAST_MODIFIED_PATH": f"{OUT}/{NEW_LAST_MODIFIED}",
        "ODF_NEW_HAS_MORE_DATA_PATH": f"{OUT}/{HAS_MORE}",
    }
    if state is not None and state.kind in _ASKED:
        protocol[_ASKED[state.kind]] = state.value
    return {"ODF_BATCH_SIZE": _BATCH_SIZE, **own, **protocol}


def _new_state(output: ContainerOutput) -> SourceState | None:
    if output.new_etag is not None:
        return state_of(ETAG, output.new_etag)
    if output.new_last_modified is None:
        return None
    return state_of(LAST_MODIFIED, str(Timestamp.parse(output.new_last_modified.strip())))


def run_locally(program: str = "docker") -> Callable[[ContainerRun], ContainerOutput]:
    """Return a function that runs containers by docker or a compatible program. Raises InputError without one."""
    if (found := shutil.which(program)) is None:
        raise InputError(f"there is no {program!r} on this machine to run containers with")

    def run(container: ContainerRun) -> ContainerOutput:
        check_container(container)
        with TemporaryDirectory(prefix="kubothek-container-") as directory, TemporaryFile() as said:
            out, variables = Path(directory, "out"), Path(directory, "env")
            out.mkdir()
            out.chmod(0o777)  # the user of the image writes here
            variables.write_text(_env_file(container))
            data: IO[bytes] = TemporaryFile()  # noqa: SIM115 - the content owns it
            ended = subprocess.run(  # noqa: S603 - the user allowed it
                _command(found, container, out, variables), stdin=subprocess.DEVNULL, stdout=data, stderr=said
            )
            if ended.returncode:
                raise SourceFailed(
                    f"the container of image {container.image!r} ended with {ended.returncode}: {tail_of(said)}"
                )
            data.flush()
            return read_output(FileContent(f"output of {container.image}", data), out)

    return run


def check_container(container: ContainerRun) -> None:
    """Check the container of a manifest. Raises SourceRefused for the image, InputError for variables and arguments."""
    where = f"fetch from image {container.image!r}"
    if IMAGE.fullmatch(container.image) is None:
        raise SourceRefused(f"{where}: this is not an image reference; write it as registry.example.com/name:tag")
    if wrong := [name for name in container.env if not _IDENTIFIER.fullmatch(name)]:
        raise InputError(
            f"{where}: variables of containers have names of letters, digits and _, "
            f"unlike {', '.join(map(repr, wrong))}"
        )
    if any("\0" in text for text in (*container.env.values(), *(container.command or ()), *(container.args or ()))):
        raise InputError(f"{where}: a variable or an argument has a zero byte")


def read_output(data: FileContent, out: Path) -> ContainerOutput:
    """Return what a container wrote: its output, and the files of ``out``, its ``/opt/odf/out``.

    Raises SourceFailed for entries that are not plain files.
    """

    def text(name: str) -> str | None:
        """Return the text of a file, None if it does not exist."""
        if (handle := open_left(out, name)) is None:
            return None
        with handle:
            found = handle.read(_TEXT_LIMIT + 1)
        if len(found) > _TEXT_LIMIT:
            raise SourceFailed(f"the container left a file {name!r} of more than {_TEXT_LIMIT >> 10} KiB")
        try:
            return found.decode().strip()
        except UnicodeDecodeError:
            raise SourceFailed(f"the container left a file {name!r} that is no UTF-8 text") from None

    return ContainerOutput(
        data=data,
        new_etag=text(NEW_ETAG) or None,
        new_last_modified=text(NEW_LAST_MODIFIED) or None,
        has_more=text(HAS_MORE) is not None,
    )


def open_left(directory: Path, name: str) -> IO[bytes] | None:
    """Open a file that a container wrote; None if there is none. Raises SourceFailed for all but plain files.

    Links are refused: the content of their target would get into the table.
    """
    try:
        return open_plain(directory / name)
    except FileNotFoundError:
        return None
    except NotPlain:
        raise SourceFailed(f"{name!r}, which the container left, is no plain file") from None
    except OSError as error:
        raise SourceFailed(f"{name!r}, which the container left, cannot be read: {error.strerror}") from None


def _command(program: str, container: ContainerRun, out: Path, variables: Path) -> list[str]:
    entrypoint, *words = container.command or ("",)
    return [
        *(program, "run", "--rm", "--volume", f"{out}:{OUT}", f"--env-file={variables}"),
        *((f"--entrypoint={entrypoint}",) if container.command else ()),
        *("--", container.image, *words, *(container.args or ())),
    ]


def _env_file(container: ContainerRun) -> str:
    """Return the variables in the form that docker reads from a file.

    Arguments of a process are visible to other users. Its environment would configure docker itself (``DOCKER_HOST``).
    """
    if broken := [name for name, value in container.env.items() if "\n" in value or "\r" in value]:
        raise InputError(
            f"fetch from image {container.image!r}: variables {', '.join(map(repr, broken))} have line breaks, which "
            "docker cannot read from a file; encode them, for example as base64"
        )
    return "".join(f"{name}={value}\n" for name, value in container.env.items())
