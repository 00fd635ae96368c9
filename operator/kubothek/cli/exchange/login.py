"""``kubothek login`` and ``logout``: tokens for gateways."""

from __future__ import annotations

import sys

import click

from kubothek.cli.exchange.tokens import forget_tokens, keep_token, origin_of


@click.command()
@click.argument("server", metavar="URL")
@click.option("--stdin", is_flag=True, help="Read the token from standard input, for scripts.")
def login(server: str, stdin: bool) -> None:
    """Store a bearer token for a server; pull, push and search then send it to this server only.

    The server must accept the token first. It is stored in ~/.config/kubothek/tokens.json, which only you can read.
    """
    from kubothek.odf.sync import Reach, Web

    origin = origin_of(server)
    token = sys.stdin.readline().strip() if stdin else click.prompt("Token", hide_input=True).strip()
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise click.UsageError("a token is one word of ASCII characters")
    web = Web(origin, Reach(token=token))

    def validate() -> None:
        with web.ask("GET", f"{origin}/platform/token/validate", "the token"):
            pass

    web.patiently(validate)
    keep_token(server, token)
    click.echo(f"logged in at {origin}")


@click.command()
@click.argument("server", metavar="URL", required=False)
@click.option("--all", "everywhere", is_flag=True, help="Forget the tokens of all servers.")
def logout(server: str | None, everywhere: bool) -> None:
    """Delete the stored token of a server."""
    if (server is None) is not everywhere:
        raise click.UsageError("name the server, or say --all")
    forgotten = forget_tokens(server)
    click.echo(f"{forgotten} token{'' if forgotten == 1 else 's'} forgotten")
