"""The webhook's server: one path over TLS, in the operator's process, on every replica."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from aiohttp import web

from kubothek.cluster.api import Api, ApiError, ApiUnavailable
from kubothek.cluster.config import WebhookConfig
from kubothek.cluster.webhook.certificate_store import Keeper
from kubothek.cluster.webhook.certificates import Certificate
from kubothek.cluster.webhook.review import answer
from kubothek.cluster.webhook.secrets import forbidden_secrets
from kubothek.controller.context import Lookup

log = logging.getLogger(__name__)

PATH: Final = "/validate"
_LARGEST: Final = 8 * 1024 * 1024
"""Maximum bytes of a review: it has two objects, of up to 1.5 MiB each in etcd."""
_LOOK: Final = 60.0
"""Seconds between two checks of the certificate."""
_RETRY: Final = 5.0


@asynccontextmanager
async def webhook(api: Api, config: WebhookConfig, there: Callable[[], Lookup | None]) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port (a free one if that of ``config`` is 0).

    ``there`` returns the observed state, or None while it is incomplete.
    """
    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post(PATH, _handler(api, there))
    with TemporaryDirectory(prefix="kubothek-webhook-") as directory:
        tls = _Tls(api, config, Path(directory))
        renewing = asyncio.create_task(tls.keep())
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        try:
            listening = _listening(config.port)
            await web.SockSite(runner, listening, ssl_context=tls.context).start()
            yield int(listening.getsockname()[1])
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            await runner.cleanup()


def _listening(port: int) -> socket.socket:
    """Return one socket for IPv4 and IPv6, where the system has both."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _handler(api: Api, there: Callable[[], Lookup | None]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handler(request: web.Request) -> web.Response:
        try:
            review = json.loads(await request.read())
            forbidden = await forbidden_secrets(api, review["request"])
            return web.json_response(answer(review, there(), forbidden))
        except (ValueError, KeyError, TypeError) as error:
            log.warning("no AdmissionReview: %r", error)
            return web.Response(status=400, text="no AdmissionReview of admission.k8s.io/v1")
        except (ApiError, ApiUnavailable) as error:
            log.warning("cannot ask whether the author of a manifest may get its Secrets: %s", error)
            return web.Response(status=503, text="cannot ask whether the author may get the Secrets of the manifest")

    return handler


class _Tls:
    """A TLS context whose certificate is replaced while in use: new connections get the new one."""

    def __init__(self, api: Api, config: WebhookConfig, directory: Path) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._keeper = Keeper(api, config)
        self._mounted = config.certificates
        self._directory = directory
        self._loaded: object = None

    async def keep(self) -> None:
        """Load the certificate and its renewals, for ever. Handshakes fail until the first is loaded."""
        while True:
            try:
                if self._mounted is not None:
                    self._load_mounted(self._mounted)
                else:
                    await self._load_own()
                await asyncio.sleep(_LOOK)
            except (ApiError, ApiUnavailable, OSError) as error:
                log.warning("the certificate of the webhook: will be tried again: %s", error)
                await asyncio.sleep(_RETRY)

    async def _load_own(self) -> None:
        current = await self._keeper.certificate()
        await self._keeper.trust(current)  # before its use, as API servers must trust it
        if current != self._loaded:
            self._load(current)
            self._loaded = current

    def _load(self, current: Certificate) -> None:
        certificate, key = self._directory / "tls.crt", self._directory / "tls.key"
        certificate.write_text(current.certificate)
        key.touch(mode=0o600)
        key.write_text(current.key)
        self.context.load_cert_chain(certificate, key)

    def _load_mounted(self, directory: Path) -> None:
        certificate, key = directory / "tls.crt", directory / "tls.key"
        seen = (certificate.read_bytes(), key.read_bytes())
        if seen != self._loaded:
            self.context.load_cert_chain(certificate, key)
            self._loaded = seen
