"""What a person can do about an attempt that failed, or does not get to run: the second half of its message."""

from __future__ import annotations

from collections.abc import Mapping

_ADVICE: Mapping[str, str] = {
    "ConfigError": "correct the Engine's podTemplate, or create what it names",
    "DeadlineExceeded": "raise deadlines.total of its Engine, or give it more or larger executors",
    "ExecutorsFailing": "the logs of its executors tell why; give them more memory if they were killed for it",
    "ImagePullFailed": "correct the image of its Engine or source, or imagePullSecrets, or make the registry answer",
    "OutOfDisk": "raise the limit on local storage (a LimitRange, or the Engine's podTemplate)",
    "OutOfMemory": "raise driver.memory of its Engine",
    "SandboxFailed": "the node has a fault (network plug-in, container runtime): cordon it, and delete the pod",
    "Unschedulable": "add a node, or ask for less in its Engine",
    "VolumeMountFailed": "create what is missing, and the pod goes on",
}
"""What a person can do about it, by reason; the rest mends itself, or the job has said."""


def advised(reason: str, message: str, limit: int) -> str:
    """What happened, and what to do about it, in at most ``limit`` characters; of what happened the beginning."""
    advice = _ADVICE.get(reason)
    if advice is None:
        return message
    room = limit - len(advice) - 2
    text = message.rstrip(" .") if len(message) <= room else f"{message[: room - 1]}…"
    return f"{text}; {advice}" if text else advice
