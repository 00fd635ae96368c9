"""Rules for the pod templates of an Engine: fields that are denied, and fields without effect.

``DENIED_CONF`` denies settings in ``sparkConf`` that load code or connect Spark elsewhere; this module denies
environment variables with the same effect. It also denies whatever the Pod Security Standard *restricted* forbids. The
operator creates the pod, so Kubernetes never checks what the author of the Engine may do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kubothek.api.engine import Engine
from kubothek.api.pod_templates import BESIDE, DRIVER_CONTAINER, EXECUTOR_CONTAINER, INSIDE, PLACEMENT
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding

DENIED_ENV: Final = frozenset(
    {
        "BASHOPTS",
        "BASH_ENV",
        "BOTO_CONFIG",
        "CLASSPATH",
        "ENV",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "HOME",
        "IFS",
        "PATH",
        "PS4",
        "SHELLOPTS",
    }
)
DENIED_ENV_PREFIXES: Final = (
    "AWS_",
    "HADOOP_",
    "JAVA_",
    "JDK_",
    "KUBERNETES_",
    "KUBOTHEK_",
    "LD_",
    "OPENSSL_",
    "POD_",
    "PYSPARK_",
    "PYTHON",
    "SPARK_",
    "_JAVA_",
    "_SPARK_",
)
"""Environment variables that determine the programs, code, credentials or identity of our container. The shell, the
loader, Python, Java, Spark, OpenSSL and the SDKs of stores read them."""

_VOLUMES: Final = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "name",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
"""Volume types that *restricted* allows."""

_Plain = Mapping[str, Any]


def denied(engine: Engine, _: Lookup | None = None) -> Iterator[Finding]:
    """Yield a finding for each denied field of the templates."""
    for path, template, ours in _templates(engine):
        spec = _mapping(template.get("spec"))
        for index, volume in enumerate(_mappings(spec.get("volumes"))):
            other = sorted(set(volume) - _VOLUMES)
            if other:
                where = f"{path}.spec.volumes[{index}]"
                yield _denied(where, f"volumes of type {other[0]} reach out of the pod: use a claim, or an emptyDir")
        for field in ("initContainers", "containers"):
            for index, container in enumerate(_mappings(spec.get(field))):
                where = f"{path}.spec.{field}[{index}]"
                if container.get("name") == ours:
                    yield from _environment(where, container)
                else:
                    yield from _privileges(where, container)


def without_effect(engine: Engine, _: Lookup | None = None) -> Iterator[Finding]:
    """Yield a finding for each field of the templates that has no effect on a pod."""
    for path, template, ours in _templates(engine):
        spec, metadata = _mapping(template.get("spec")), _mapping(template.get("metadata"))
        lost = [f"{path}.metadata.{field}" for field in metadata if field not in ("labels", "annotations")]
        lost += [f"{path}.spec.{field}" for field in spec if field not in (*PLACEMENT, *BESIDE)]
        for index, container in enumerate(_mappings(spec.get("containers"))):
            if container.get("name") == ours:
                lost += [f"{path}.spec.containers[{index}].{f}" for f in container if f not in ("name", *INSIDE)]
        for where in lost:
            yield Finding(
                "NoEffect", where, "is the operator's to say, and has no effect here: remove it", denies=False
            )


def _templates(engine: Engine) -> Iterator[tuple[str, _Plain, str]]:
    templates = engine.spec.pod_template
    yield "spec.podTemplate.driver", templates.driver, DRIVER_CONTAINER
    yield "spec.podTemplate.executor", templates.executor, EXECUTOR_CONTAINER


def _environment(where: str, container: _Plain) -> Iterator[Finding]:
    for index, variable in enumerate(_mappings(container.get("env"))):
        name = str(variable.get("name"))
        if name in DENIED_ENV or name.startswith(DENIED_ENV_PREFIXES):
            message = f"{name} decides which code or credentials a job uses, which only the operator may: remove it"
            yield _denied(f"{where}.env[{index}]", message)
    for index, source in enumerate(_mappings(container.get("envFrom"))):
        prefix = str(source.get("prefix") or "")
        hidden = sorted(name for name in (*DENIED_ENV, *DENIED_ENV_PREFIXES) if name.startswith(prefix))
        hidden += [name for name in DENIED_ENV_PREFIXES if prefix.startswith(name)]
        if hidden:
            message = (
                f"what names it brings is in an object that anybody may edit, and {hidden[0]} could be one: name the "
                f"variables in env, with valueFrom, or give it another prefix, such as APP_"
            )
            yield _denied(f"{where}.envFrom[{index}]", message)


def _privileges(where: str, container: _Plain) -> Iterator[Finding]:
    context = _mapping(container.get("securityContext"))
    for field in ("privileged", "allowPrivilegeEscalation"):
        if context.get(field) is True:
            yield _denied(f"{where}.securityContext.{field}", "no container of a job may have it: remove it")
    added = _mapping(context.get("capabilities")).get("add") or ()
    if set(added) - {"NET_BIND_SERVICE"}:
        yield _denied(f"{where}.securityContext.capabilities.add", "no container of a job may have them: remove them")
    if any(port.get("hostPort") for port in _mappings(container.get("ports"))):
        yield _denied(f"{where}.ports", "hostPort opens a port of the node: remove it")


def _denied(where: str, message: str) -> Finding:
    return Finding("PodTemplateDenied", where, message)


def _mapping(value: object) -> _Plain:
    """Return a value that is a mapping, otherwise an empty one: the API server rejects the pod for other values."""
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> Iterable[_Plain]:
    return [_mapping(item) for item in value] if isinstance(value, list | tuple) else []
