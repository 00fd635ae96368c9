"""The pod of this process, read and annotated with the rights of its service account."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from kubothek.spark.pod import api_server

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Directory with the pod's token and the certificate of the API server."""
_SECONDS: Final = 5.0
"""Timeout of one request."""
_WATCH_SECONDS: Final = 300
_SILENCE_SECONDS: Final = 75.0
"""Silence after which a watch is dead: bookmarks arrive every 60 s."""


class OwnPod:
    """One pod at the API server. Methods raise OSError if the API server is unreachable or refuses."""

    def __init__(self, namespace: str, name: str, *, server: str, account: Path = SERVICE_ACCOUNT) -> None:
        self._pods = f"{server}/api/v1/namespaces/{namespace}/pods"
        self._name = name
        self._account = account

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Self | None:
        """Return the pod of this process; None outside of a pod."""
        if "POD_NAME" not in environ or not SERVICE_ACCOUNT.is_dir():
            return None
        return cls(environ["POD_NAMESPACE"], environ["POD_NAME"], server=api_server(environ))

    def annotate(self, annotations: Mapping[str, str | None], seconds: float = _SECONDS) -> None:
        """Set annotations; None removes one."""
        body = json.dumps({"metadata": {"annotations": dict(annotations)}}).encode()
        headers = {"Content-Type": "application/merge-patch+json"}
        request = self._request(f"{self._pods}/{self._name}", headers, data=body, method="PATCH")
        with urllib.request.urlopen(request, timeout=seconds, context=self._trust()):  # noqa: S310
            pass

    def states(self) -> Iterator[dict[str, str]]:
        """Yield the annotations now and after each change of the pod, for up to 300 s."""
        # Without a resource version a watch begins with the current state.
        query = f"watch=1&fieldSelector=metadata.name%3D{self._name}"
        query += f"&allowWatchBookmarks=true&timeoutSeconds={_WATCH_SECONDS}"
        request = self._request(f"{self._pods}?{query}", {})
        try:
            with urllib.request.urlopen(request, timeout=_SILENCE_SECONDS, context=self._trust()) as lines:  # noqa: S310
                for line in lines:
                    event = json.loads(line)
                    if event["type"] in ("ADDED", "MODIFIED"):
                        yield event["object"]["metadata"].get("annotations") or {}
        except (http.client.HTTPException, ValueError) as error:  # the connection ended within a line
            raise ConnectionError(f"watching the pod: {error}") from error

    def _request(
        self, url: str, headers: Mapping[str, str], data: bytes | None = None, method: str = "GET"
    ) -> urllib.request.Request:
        bearer = {"Authorization": f"Bearer {(self._account / 'token').read_text()}"}
        return urllib.request.Request(url, data=data, method=method, headers=bearer | dict(headers))  # noqa: S310

    def _trust(self) -> ssl.SSLContext | None:
        if not self._pods.startswith("https"):
            return None
        return ssl.create_default_context(cafile=self._account / "ca.crt")
