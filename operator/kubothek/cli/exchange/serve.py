"""``kubothek serve``: a gateway on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import store_options

if TYPE_CHECKING:
    import ssl

    from kubothek.cli.stores import StoreChoice


@click.command()
@store_options
@click.option("--public", multiple=True, metavar="NAME", help="A dataset that needs no token to be read; repeatable.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Who may do what: a YAML list of {name, token, pull: [NAME…], push, ingest, query}; '*' is all.",
)
@click.option("--listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT")
@click.option("--tls-cert", type=click.Path(path_type=Path, exists=True), help="Certificate chain, for https.")
@click.option("--tls-key", type=click.Path(path_type=Path, exists=True), help="Its private key.")
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="CIDR",
    help="What is in front of it, whose X-Forwarded-For is believed; repeatable.",
)
@click.option("--no-presigned", is_flag=True, help="Send all through here: clients do not reach the store itself.")
def serve(
    choice: StoreChoice,
    public: tuple[str, ...],
    token_file: Path | None,
    listen: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    proxies: tuple[str, ...],
    no_presigned: bool,
) -> None:
    """Serve the ledgers of a store, accept pushes and ingestion, and serve all datasets as an Iceberg REST catalogue.

    The simple and the smart transfer protocol of Open Data Fabric, POST /NAME/ingest, GET /NAME/tail, /query, /search.
    The catalogue is at /iceberg, its namespace is "default". Nothing is public unless --public names it. A line is
    written for each request.
    """
    import asyncio
    import logging

    from kubothek.gateway.access import Nobody, Tokens
    from kubothek.gateway.app import make_app
    from kubothek.gateway.catalogue import OneStore
    from kubothek.gateway.limits import Limits
    from kubothek.gateway.server import serve as serve_app

    host, port = _listen(listen)
    tls = _tls(tls_cert, tls_key)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    access = Nobody() if token_file is None else Tokens.of_file(token_file)
    limits = Limits()
    with choice.opened() as store:
        store.probe()
        app = make_app(
            OneStore(store, frozenset(public)),
            access,
            limits=limits,
            presigned=0 if no_presigned else 3600,
            proxies=proxies,
        )

        def listening(found: int) -> None:
            url = f"http{'s' if tls else ''}://{host}:{found}"
            click.echo(f"{store.url} is served at {url}\nIceberg REST catalogue: {url}/iceberg", err=True)

        asyncio.run(serve_app(app, limits, host.strip("[]"), port, tls, listening))


def _listen(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(f"--listen {text!r}: write HOST:PORT, such as 0.0.0.0:8080")
    return host, int(port)


def _tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise click.UsageError("--tls-cert and --tls-key go together")
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert, key)
    return context
