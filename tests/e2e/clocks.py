"""Pods whose clock a test sets while they run, by libfaketime: nothing else can set the clock of one pod alone."""

from __future__ import annotations

import base64

from tests.cluster.debian import Unpacked
from tests.e2e.kubectl import Kubectl, KubectlError, Manifest, eventually

_LIBRARY = "libfaketime.so.1"
_NAME = "clock"
_DIRECTORY = "/clock"
_OFFSET = "/tmp/clock"
FAKETIME = Unpacked("libfaketime", (_LIBRARY,), directory="usr/lib/*/faketime")


def config_maps(*offsets: int) -> list[Manifest]:
    """The library, small enough to be mounted, and the environment that loads it: of pods whose clock is so many
    seconds off from their first moment, and of those for :func:`step`.
    """
    library = base64.b64encode((FAKETIME.ensure() / _LIBRARY).read_bytes()).decode()
    faked = {_environment(offset): {"FAKETIME": f"{offset:+}"} for offset in offsets}
    faked[_environment(0)] = {"FAKETIME_TIMESTAMP_FILE": _OFFSET, "FAKETIME_CACHE_DURATION": "1"}
    # What measures how long something takes is not the clock that people set.
    always = {"LD_PRELOAD": f"{_DIRECTORY}/{_LIBRARY}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    environments = [_config_map(name, data={**always, **env}) for name, env in faked.items()]
    return [_config_map(_NAME, binaryData={_LIBRARY: library}), *environments]


def template(container: str, offset: int = 0) -> Manifest:
    """What a pod template needs for it; the offset is one of those of :func:`config_maps`, or 0 for :func:`step`."""
    inside = {
        "name": container,
        "envFrom": [{"configMapRef": {"name": _environment(offset)}}],
        "volumeMounts": [{"name": _NAME, "mountPath": _DIRECTORY, "readOnly": True}],
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
