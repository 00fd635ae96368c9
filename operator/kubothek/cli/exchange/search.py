"""``kubothek search``: search for ledgers in a store or at a gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from kubothek.cli.exchange.tokens import origin_of, token_for
from kubothek.cli.options import store_options
from kubothek.cli.output import output_option, show

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice

_LARGEST = 16 << 20


@click.command()
@store_options
@click.argument("words", nargs=-1)
@click.option("--at", "server", metavar="URL", help="A gateway; default: the store.")
@output_option()
def search(choice: StoreChoice, words: tuple[str, ...], server: str | None, output: str) -> None:
    """Find ledgers whose name, keywords or description have all of these words."""
    from kubothek.cli.columns import listed

    found = _here(choice, words) if server is None else _there(server, words)
    longest = None if output == "wide" else 60
    rows = [(e["name"], e["kind"], f"{e['records']:,}", (e["description"] or "")[:longest]) for e in found]
    headers = ("NAME", "KIND", "RECORDS", "DESCRIPTION")
    shorten = ("NAME", "DESCRIPTION")
    show(output, found, listed(headers, rows, right=("RECORDS",), shorten=shorten, wide=output == "wide"))


def _here(choice: StoreChoice, words: tuple[str, ...]) -> list[dict[str, Any]]:
    from kubothek.odf.sync.found import search_store

    with choice.opened() as store:
        return [*search_store(store, words)]


def _there(server: str, words: tuple[str, ...]) -> list[dict[str, Any]]:
    import orjson

    from kubothek.errors import FormatInvalid
    from kubothek.odf.sync import Reach, Web

    origin = origin_of(server)
    web = Web(origin, Reach(token=token_for(server)))

    def ask() -> bytes:
        with web.ask("GET", f"{origin}/search?query={quote(' '.join(words))}", "search") as answer:
            return answer.read(_LARGEST)

    try:
        found = orjson.loads(web.patiently(ask))["datasets"]
        return [{"records": 0, "description": "", **each} for each in found if {"name", "kind"} <= each.keys()]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise FormatInvalid(f"{origin} did not answer the search in the form of a gateway: check the URL") from None
