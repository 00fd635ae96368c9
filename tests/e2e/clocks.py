"""Pods whose clock a test sets while they run, by libfaketime: nothing else can set the clock of one pod alone."""

from __future__ import annotations

import base64
from pathlib import PurePosixPath

from tests.e2e.kubectl import Kubectl, KubectlError, Manifest, eventually
from tests.testcluster.debian import Unpacked

_LIBRARY = "libfaketime.so.1"
_NAME = "clock"
_DIRECTORY = "/clock"
_OFFSET = "/tmp/clock"
_PRELOAD = PurePosixPath("/etc/ld.so.preload")
"""What loads the library: no template may have LD_PRELOAD."""
FAKETIME = Unpacked("libfaketime", (_LIBRARY,), directory="usr/lib/*/faketime")


def config_maps(*offsets: int) -> list[Manifest]:
    """The library, small enough to be mounted, and what it is told by the environment: of pods whose clock is so many
    seconds off from their first moment, and of those for :func:`step`.
    """
    library = base64.b64encode((FAKETIME.ensure() / _LIBRARY).read_bytes()).decode()
    faked = {_environment(offset): {"TIME": f"{offset:+}"} for offset in offsets}
    faked[_environment(0)] = {"TIME_TIMESTAMP_FILE": _OFFSET, "TIME_CACHE_DURATION": "1"}
    # What measures how long something takes is not the clock that people set.
    environments = [_config_map(name, data={"TIME_DONT_FAKE_MONOTONIC": "1", **env}) for name, env in faked.items()]
    preload = {_PRELOAD.name: f"{_DIRECTORY}/{_LIBRARY}\n"}
    return [_config_map(_NAME, binaryData={_LIBRARY: library}, data=preload), *environments]


def template(container: str, offset: int = 0) -> Manifest:
    """What a pod template needs for it; the offset is one of those of :func:`config_maps`, or 0 for :func:`step`."""
    mounts = [
        {"name": _NAME, "mountPath": _DIRECTORY, "readOnly": True},
        {"name": _NAME, "mountPath": str(_PRELOAD), "subPath": _PRELOAD.name, "readOnly": True},
    ]
    inside = {
        "name": container,
        "envFrom": [{"prefix": "FAKE", "configMapRef": {"name": _environment(offset)}}],
        "volumeMounts": mounts,
    }
    return {"spec": {"containers": [inside], "volumes": [{"name": _NAME, "configMap": {"name": _NAME}}]}}


def _environment(offset: int) -> str:
    return f"{_NAME}-{'behind' if offset < 0 else 'ahead'}-{abs(offset)}"


def _config_map(name: str, **data: dict[str, str]) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **data}


def step(kubectl: Kubectl, pod: str, container: str, offset: int) -> None:
    """Set the clock of a pod that runs, or is about to."""

    def done() -> bool:
        try:
            kubectl("exec", pod, "-c", container, "--", "/bin/sh", "-c", f"echo '{offset:+}' > {_OFFSET}")
        except KubectlError:
            return False
        return True

    eventually(done, f"the clock of {pod} to be set")
