"""Resources of specification 0.39 (RFC-018): a Dataset and its Sources as a DatasetSnapshot, and back.

The specification relates a Source to a Dataset by a Flow. Here the relation is the text: the Sources of a YAML text are
those of its one Dataset. As strict as the other manifests. A chain has no place for labels, annotations and the name of
a polling Source: they are :data:`Headers`. Ids, ``volume`` and ``buffer`` are read and not kept: a store is chosen by
its user, and pushed data is committed at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from kubothek.errors import FormatInvalid, UnsupportedVersion
from kubothek.odf.spec import plain_yaml
from kubothek.odf.spec.events import AddPushSource, DatasetSnapshot, MetadataEvent, SetPollingSource
from kubothek.odf.spec.fields import Simple, Table, union_of
from kubothek.odf.spec.manifests import plain_value, read_snapshot, read_value
from kubothek.odf.spec.names import Name, parse_alias
from kubothek.odf.spec.versions import SpecVersion

DATASET: Final = "https://opendatafabric.org/schemas/dataset/v1alpha1/Dataset"
SOURCE: Final = "https://opendatafabric.org/schemas/source/v1alpha1/Source"
_BASE: Final = "https://opendatafabric.org/schemas/"
_READ: Final = {DATASET: "Dataset", SOURCE: "Source", "Dataset": "Dataset", "Source": "Source"}
KEPT: Final = "opendatafabric.org/headers"
"""The user metadata of a dataset that has its :data:`Headers`, as JSON text."""
_MARKS: Final = ("labels", "annotations")
_HEADERS: Final = ("name", "account", "id", *_MARKS)
_DATASET: Final = ("kind", "metadata", "did", "volume")
_SOURCE: Final = ("config", "ingress", "prepare", "read", "preprocess", "merge", "vocab")
_REST: Final = "RestEndpoint"
_RENAMED: Final = {"EvmLogs": "EthereumLogs"}
"""Kinds of ingress that have another name as a fetch step."""
_CONFIG: Final = re.compile(r"\$\{\{\s*config\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_ENV: Final = re.compile(r"\$\{\{\s*env\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")

Plain = dict[str, Any]
Headers: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Labels and annotations by resource: ``Dataset``, ``Source`` (the polling one, with its name), ``Source NAME``."""


def read_definition(text: str) -> DatasetSnapshot:
    """Parse the DatasetSnapshot of a YAML text, or its Dataset resource and the Sources of that, in any order.

    A polling Source becomes a SetPollingSource; one with a RestEndpoint or without ingress, an AddPushSource.
    ``${{ config.NAME }}`` of an ingress becomes ``${{ env.NAME }}``; a Source without ``merge`` appends.

    Raises FormatInvalid, which names the place, and UnsupportedVersion for resources of other types and versions.
    """
    documents = plain_yaml.load_all(text)
    if not _are_resources(documents):
        return read_snapshot(text)
    dataset, sources = _split(documents)
    snapshot = _dataset(dataset)
    events = [_source(each) for each in sources]
    if len([event for event in events if isinstance(event, SetPollingSource)]) > 1:
        raise FormatInvalid("a Dataset has one polling Source at most: remove the others, or make them RestEndpoints")
    return DatasetSnapshot(name=snapshot.name, kind=snapshot.kind, metadata=(*snapshot.metadata, *events))


def read_headers(text: str) -> Headers:
    """Return the headers of a text that :func:`read_definition` reads; none of a DatasetSnapshot.

    Raises FormatInvalid for labels or annotations that are no mapping, or have a number that JSON cannot hold.
    """
    documents = plain_yaml.load_all(text)
    if not _are_resources(documents):
        return {}
    dataset, sources = _split(documents)
    found: dict[str, Plain] = {"Dataset": _marks(dataset["headers"], "Dataset")}
    for source in sources:
        name, marks = source["headers"]["name"], _marks(source["headers"], "Source")
        if isinstance(_source(source), SetPollingSource):
            found["Source"] = {"name": name, **marks}
        else:
            found[f"Source {name}"] = marks
    return {resource: kept for resource, kept in found.items() if kept}


def _marks(headers: Plain, kind: str) -> Plain:
    marks = {part: headers[part] for part in _MARKS if headers.get(part)}
    for part, value in marks.items():
        if not isinstance(value, dict):
            raise FormatInvalid(f"{kind}.headers.{part} must be a mapping of names to values")
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise FormatInvalid(f"{kind}.headers.{part} is not JSON: {error}") from None
    return marks


def write_resources(snapshot: DatasetSnapshot, headers: Headers = MappingProxyType({})) -> str:
    """Return the YAML of the Dataset resource, and of one Source resource for each source, in the form of 0.39.

    ``${{ env.NAME }}`` of a source becomes a value of the SecretSet that has the name of the dataset.
    """
    alias = parse_alias(snapshot.name)
    account = {} if alias.account is None else {"account": str(alias.account)}
    sources = [each for each in snapshot.metadata if isinstance(each, SetPollingSource | AddPushSource)]
    others = [each for each in snapshot.metadata if each not in sources]
    spec = {
        "kind": snapshot.kind.value,
        "metadata": [plain_value(union_of(MetadataEvent), each, SpecVersion.V0_39) for each in others],
    }
    named = {"name": str(alias.dataset), **account}
    resources: list[Plain] = [{"$schema": DATASET, "headers": {**named, **headers.get("Dataset", {})}, "spec": spec}]
    for event in sources:
        content = plain_value(Table(type(event)), event, SpecVersion.V0_39)
        if isinstance(event, SetPollingSource):
            kept, content = headers.get("Source", {}), _polled(content, str(alias.dataset))
        else:
            name = content.pop("sourceName")
            kept, content = {"name": name, **headers.get(f"Source {name}", {})}, {"ingress": {"kind": _REST}, **content}
        resources.append({"$schema": SOURCE, "headers": {**named, **kept}, "spec": content})
    return "---\n".join(map(plain_yaml.dump, resources))


def _polled(content: Plain, dataset: str) -> Plain:
    names = dict.fromkeys(match[1] for text in _texts(content["fetch"]) for match in _ENV.finditer(text))
    fetch = _filled(content.pop("fetch"), _ENV, "config")
    kind = {fetched: ingress for ingress, fetched in _RENAMED.items()}.get(fetch["kind"], fetch["kind"])
    config = {"config": {name: f"SecretSet:{dataset}#{name}" for name in names}} if names else {}
    return {**config, "ingress": {**fetch, "kind": kind}, **content}


def _are_resources(documents: list[Any]) -> bool:
    return any(isinstance(document, dict) and "$schema" in document for document in documents)


def _split(documents: list[Any]) -> tuple[Plain, list[Plain]]:
    """Return the one Dataset, and its Sources."""
    datasets, sources = list[Plain](), list[Plain]()
    for document in documents:
        kind, content = _resource(document)
        (datasets if kind == "Dataset" else sources).append(content)
    if len(datasets) != 1:
        raise FormatInvalid(f"the text has {len(datasets)} Dataset resources: put one and its Sources into a file")
    return datasets[0], sources


def _resource(document: object) -> tuple[str, Plain]:
    """Return the type of a resource and its content, whose fields are checked to be known."""
    if not isinstance(document, dict) or not isinstance(document.get("$schema"), str):
        raise FormatInvalid("a document without $schema beside resources: put it into a file of its own")
    if (kind := _READ.get(document["$schema"])) is None:
        shown = document["$schema"].removeprefix(_BASE)
        raise UnsupportedVersion(
            f"resource {shown!r} cannot be used here: Dataset and Source of version v1alpha1 can; remove the document"
        )
    _known(document, ("$schema", "headers", "spec"), kind)
    for part, fields in (("headers", _HEADERS), ("spec", _DATASET if kind == "Dataset" else _SOURCE)):
        if not isinstance(document.get(part), dict):
            raise FormatInvalid(f"{kind}.{part} must be a mapping")
        _known(document[part], fields, f"{kind}.{part}")
    if "name" not in document["headers"]:
        raise FormatInvalid(f"{kind}.headers.name is missing")
    return kind, document


def _known(value: Plain, fields: tuple[str, ...], where: str) -> None:
    if unknown := sorted(map(str, set(value) - set(fields))):
        raise FormatInvalid(f"{where} has the unknown field {unknown[0]!r}; known are: {', '.join(fields)}")


def _dataset(document: Plain) -> DatasetSnapshot:
    spec, headers = document["spec"], document["headers"]
    if "did" in spec:
        raise FormatInvalid(
            f"Dataset resource: the did names {spec['did']!r}, which exists: pull it, or remove the field"
        )
    account = headers.get("account")
    if isinstance(account, dict):
        account = account.get("name")
    names = [account, headers["name"]] if account is not None else [headers["name"]]
    name = "/".join(Name(read_value(Simple.TEXT, each, "Dataset.headers.name or account")) for each in names)
    content = {"name": name, **{field: spec[field] for field in ("kind", "metadata") if field in spec}}
    snapshot: DatasetSnapshot = read_value(Table(DatasetSnapshot), content, "Dataset.spec")
    return snapshot


def _source(document: Plain) -> MetadataEvent:
    spec = document["spec"]
    name = read_value(Simple.TEXT, document["headers"]["name"], "Source.headers.name")
    if "vocab" in spec:
        raise FormatInvalid("Source.spec.vocab cannot be used: the Dataset names the columns; give it a SetVocab")
    common = {key: spec[key] for key in ("read", "preprocess") if key in spec}
    common["merge"] = spec.get("merge", {"kind": "Append"})
    ingress = spec.get("ingress", {"kind": _REST})
    if not isinstance(ingress, dict):
        raise FormatInvalid("Source.spec.ingress must be a mapping with a kind")
    if ingress.get("kind") == _REST:
        _known(ingress, ("kind", "buffer"), "Source.spec.ingress")
        if "prepare" in spec:
            raise FormatInvalid("Source.spec.prepare is for polling sources: pushed data is read as it is; remove it")
        return _event(AddPushSource, {"sourceName": name, **common})
    config = spec.get("config", {})
    if not isinstance(config, dict):
        raise FormatInvalid("Source.spec.config must be a mapping of names to references")
    used = {match[1] for text in _texts(ingress) for match in _CONFIG.finditer(text)}
    if missing := sorted(used - set(config)):
        raise FormatInvalid(f"Source.spec.ingress uses config.{missing[0]}, which Source.spec.config does not have")
    fetch = {**_filled(ingress, _CONFIG, "env"), "kind": _RENAMED.get(str(ingress.get("kind")), ingress.get("kind"))}
    prepare = {"prepare": spec["prepare"]} if "prepare" in spec else {}
    return _event(SetPollingSource, {"fetch": fetch, **prepare, **common})


def _event(record: type, content: Plain) -> MetadataEvent:
    """Return the event of a Source; errors name the field of the resource."""
    try:
        event: MetadataEvent = read_value(Table(record), content, "Source.spec")
    except FormatInvalid as error:
        raise FormatInvalid(str(error).replace("Source.spec.fetch", "Source.spec.ingress")) from None
    return event


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def _filled(value: Any, pattern: re.Pattern[str], context: str) -> Any:
    """Return the same with each variable of ``pattern`` taken from another context."""
    if isinstance(value, dict):
        return {key: _filled(each, pattern, context) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, pattern, context) for each in value]
    return pattern.sub(rf"${{{{ {context}.\1 }}}}", value) if isinstance(value, str) else value
