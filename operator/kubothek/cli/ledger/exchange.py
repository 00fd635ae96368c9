"""``kubothek import`` and ``export``: exchange of ledgers with other Open Data Fabric programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.ledger.common import BY, elsewhere, writable_log
from kubothek.cli.options import store_options
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.odf.dataset import Root
    from kubothek.odf.derived import Derivative
    from kubothek.odf.spec.events import DatasetSnapshot
    from kubothek.odf.spec.resources import Headers
    from kubothek.storage import StoreConfig

_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PART: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_KEY: Final = re.compile(rf"((?=[^/]{{1,253}}/){_PART}(\.{_PART})*/)?{_NAME}")
_LABEL: Final = re.compile(rf"({_NAME})?")
_BYTES: Final = 256 << 10
"""The most bytes of all annotations of an object."""


@click.command("import")
@store_options
@click.argument("what", metavar="FILE|DIR|URL")
@click.option("--name", metavar="NAME", help="Of the new dataset; default: that of the snapshot, or of the directory.")
@click.option("--manifest", is_flag=True, help="Only write the Dataset manifest of a snapshot, to standard output.")
@click.option("--no-table", is_flag=True, help="Keep the chain only, without its current state as a table.")
@click.option("--partition-on", multiple=True, metavar="COLUMN", help="Of the table; repeatable.")
def import_(
    choice: StoreChoice, what: str, name: str | None, manifest: bool, no_table: bool, partition_on: tuple[str, ...]
) -> None:
    """Create a dataset from an Open Data Fabric snapshot, resource or dataset.

    FILE is YAML: a DatasetSnapshot, as in kamu, or the resource Dataset of RFC-018 and its Sources, separated by ---.
    Its events begin a new chain, or with --manifest, become the spec.ledger of a Dataset for a cluster. DIR, or a URL
    of a store, is a whole dataset in the layout of the simple transfer protocol: its chain is verified, then copied
    block by block, and its table is built from it.
    """
    path = Path(what)
    if path.is_file():
        snapshot, headers = _definition(path)
        uuid = name or short_name(snapshot.name)
        if manifest:
            click.echo(_manifest(snapshot, headers, uuid, choice.store_name or "lake", partition_on), nl=False)
            return
        _create(choice, snapshot, headers, uuid, no_table=no_table, partition_on=partition_on)
        return
    if manifest:
        raise click.UsageError(f"--manifest requires the file of a DatasetSnapshot or Dataset; {what!r} is not one")
    if not path.is_dir() and ":" not in what:
        raise click.UsageError(f"{what!r} is not a file, directory or URL")
    _take_over(choice, what, name or short_name(what.rstrip("/")), no_table=no_table, partition_on=partition_on)


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("target", metavar="[DIR|URL]", required=False)
@click.option("--resources", is_flag=True, help="Only write the Dataset and its Sources (RFC-018), to standard output.")
def export(choice: StoreChoice, dataset: str, target: str | None, resources: bool) -> None:
    """Write a ledger with its whole chain in a form that other Open Data Fabric programs can read.

    The layout is that of the simple transfer protocol: a web server that serves the directory is a repository. A
    repetition adds what is new. With --resources, the definition that is in force, without data, as import reads it.
    """
    from kubothek.odf.dataset import Ledger
    from kubothek.odf.dataset import export as export_chain
    from kubothek.odf.named import missing_text
    from kubothek.odf.spec.blocks import Block
    from kubothek.odf.spec.resources import KEPT, write_resources
    from kubothek.storage import open_store
    from kubothek.storage.urls import create_directory
    from kubothek.table.log import DatasetLog

    if resources == (target is not None):
        raise click.UsageError("export needs either DIR|URL or --resources")
    with choice.opened() as store:
        root = Ledger(store, DatasetLog(store, dataset), by=BY)
        if target is None:
            headers = json.loads(root.snapshot.head.metadata.get(KEPT, "{}"))
            definition = root.chain.definition
            click.echo(write_resources(definition.snapshot(dataset), headers), nl=False)
            for name, data in definition.blocks.items():
                for part in Block.decode(data).unknown:
                    click.echo(f"of a later version of Open Data Fabric, not written: {name}: {part}", err=True)
            return
        elsewhere = _elsewhere(target, choice)
        create_directory(elsewhere)
        done = export_chain(root, open_store(elsewhere))
    written = f"{count(done.blocks, 'block')} and {count(done.objects, 'data file')} written, up to {done.head}"
    click.echo(f"{dataset}: {written}{missing_text(done.missing)}")


def _create(
    choice: StoreChoice,
    snapshot: DatasetSnapshot,
    headers: Headers,
    uuid: str,
    *,
    no_table: bool,
    partition_on: tuple[str, ...],
) -> None:
    from kubothek.jobs.chains import owner_key
    from kubothek.local.credentials import make_identity
    from kubothek.local.manifests import Key
    from kubothek.local.state import State
    from kubothek.odf.dataset import create
    from kubothek.odf.derived import create as create_derivative
    from kubothek.odf.derived import inputs_of
    from kubothek.odf.spec.events import DatasetKind
    from kubothek.odf.spec.resources import KEPT
    from kubothek.storage import open_store
    from kubothek.storage.urls import create_directory

    with choice.config() as config:
        create_directory(config)
        store = open_store(config)
        identity = State.of(config.url, config.endpoint, Path.cwd()).identity(Key("Dataset", "default", uuid))
        make_identity(identity)
        log, key = writable_log(store, uuid), owner_key(str(identity))
        table = None if no_table else table_of(partition_on)
        metadata = {KEPT: json.dumps(headers)} if headers else {}
        root: Root | Derivative
        if snapshot.kind is DatasetKind.DERIVATIVE:
            inputs = inputs_of(store, _short_names(snapshot))
            root = create_derivative(store, log, snapshot, key, inputs, table=table, metadata=metadata, by=BY)
        else:
            root = create(store, log, snapshot, key, table=table, metadata=metadata, by=BY)
    assert root.state.seed is not None, "a chain begins with one"
    click.echo(f"{uuid}: created with {count(root.state.length, 'block')}, as {root.state.seed.dataset_id}")
    click.echo(f"its private key is in {identity}: keep a copy", err=True)


def _take_over(choice: StoreChoice, what: str, uuid: str, *, no_table: bool, partition_on: tuple[str, ...]) -> None:
    from kubothek.odf.dataset import import_chain
    from kubothek.odf.named import missing_text
    from kubothek.odf.validation.linked import listed_missing
    from kubothek.storage import open_store

    with choice.opened(create=True) as store:
        source = open_store(_elsewhere(what, choice))
        table = None if no_table else table_of(partition_on)
        root = import_chain(store, writable_log(store, uuid), source, table=table, by=BY)
        missing = [link for links in listed_missing(store, root.layout) for link in links]
    made = f"{count(root.state.length, 'block')}, {count(root.state.next_offset, 'record')}, verified"
    click.echo(f"{uuid}: {made}{missing_text(missing)}")


def table_of(partition_on: tuple[str, ...]):  # type: ignore[no-untyped-def]
    """Return the layout of a new table."""
    from kubothek.odf.dataset import Table
    from kubothek.table.layout import Layout

    return Table(layout=Layout(partition_on=partition_on))


def _elsewhere(text: str, choice: StoreChoice) -> StoreConfig:
    """Return the store of a directory or URL."""
    from kubothek.storage import StoreConfig

    return StoreConfig(elsewhere(text), choice.endpoint, choice.region)


def _definition(path: Path) -> tuple[DatasetSnapshot, Headers]:
    from kubothek.errors import FormatInvalid, UnsupportedVersion
    from kubothek.odf.spec.resources import read_definition, read_headers

    try:
        text = path.read_text()
        return read_definition(text), read_headers(text)
    except UnicodeDecodeError:
        raise FormatInvalid(f"{path} is not UTF-8 text") from None
    except (FormatInvalid, UnsupportedVersion) as error:
        raise type(error)(f"{path}: {error}") from None


def _short_names(snapshot: DatasetSnapshot) -> dict[str, str]:
    """Return the short name of each input, under which it was imported."""
    from kubothek.odf.spec.events import SetTransform

    transforms = (event for event in snapshot.metadata if isinstance(event, SetTransform))
    return {each.dataset_ref: short_name(each.dataset_ref) for event in transforms for each in event.inputs}


def short_name(name: str) -> str:
    """Return a valid name of a dataset and a resource: ``acme/nyc.flights`` becomes ``nyc-flights``."""
    return re.sub(r"[^a-z0-9]+", "-", name.rpartition("/")[2].lower()).strip("-")[:40] or "dataset"


def _named_input(given: Mapping[str, str]) -> dict[str, str]:
    """Return an input with the name of its Dataset; its alias in the SQL is unchanged."""
    from kubothek.api.transforms import is_identity

    reference = given["datasetRef"]
    if is_identity(reference):
        return dict(given)
    return {"datasetRef": short_name(reference), "alias": given.get("alias", reference)}


def _manifest(snapshot: DatasetSnapshot, headers: Headers, uuid: str, store: str, partition_on: tuple[str, ...]) -> str:
    """Return the manifest of a Dataset with the same events; labels and annotations that it cannot have are named."""
    from kubothek.api.kinds import InvalidResource, parse
    from kubothek.api.meta import API_VERSION
    from kubothek.odf.spec import plain_yaml
    from kubothek.odf.spec.events import DatasetSnapshot
    from kubothek.odf.spec.fields import Table
    from kubothek.odf.spec.manifests import plain_value

    content = plain_value(Table(DatasetSnapshot), snapshot)
    for event in content["metadata"]:
        if event["kind"] == "SetTransform":
            event["inputs"] = [_named_input(each) for each in event["inputs"]]
    spec = {
        "storeRef": {"name": store},
        **({"table": {"partitionOn": list(partition_on)}} if partition_on else {}),
        "ledger": {"kind": content["kind"], "metadata": content["metadata"]},
    }
    allowed, refused = _in_cluster(headers)
    for each in refused:
        click.echo(each, err=True)
    manifest = {"apiVersion": API_VERSION, "kind": "Dataset", "metadata": {"name": uuid, **allowed}, "spec": spec}
    try:
        parse(manifest, local=True)
    except InvalidResource as error:
        raise click.ClickException(f"the snapshot {snapshot.name!r} cannot be a Dataset: {error}") from None
    return plain_yaml.dump(manifest)


def _in_cluster(headers: Headers) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return the labels and annotations (RFC-018) that Kubernetes allows, and a message about each other one."""
    allowed, refused = dict[str, dict[str, str]](), list[str]()
    for resource, kept in headers.items():
        for part in ("labels", "annotations"):
            size = 0
            for key, value in kept.get(part, {}).items():
                size += len(key.encode()) + len(str(value).encode())
                if why := next(_faults(resource, part, key, value, size), None):
                    refused.append(f"not in the manifest: {part.removesuffix('s')} {key!r} of the {resource}: {why}")
                else:
                    allowed.setdefault(part, {})[key] = value
    return allowed, refused


def _faults(resource: str, part: str, key: str, value: Any, size: int) -> Iterator[str]:
    if resource != "Dataset":
        yield "a Source is not an object in the cluster"
    if not _KEY.fullmatch(key):
        yield "Kubernetes allows keys [domain/]name, with a name of at most 63 of A-Z, a-z, 0-9, '-', '_', '.'"
    if not isinstance(value, str):
        yield "Kubernetes allows only text as values"
    elif part == "labels" and not _LABEL.fullmatch(value):
        yield "Kubernetes allows label values of at most 63 of A-Z, a-z, 0-9, '-', '_', '.'"
    if part == "annotations" and size > _BYTES:
        yield "Kubernetes allows at most 256 KiB of annotations"
