"""What a pod knows of the cluster it runs in."""

from __future__ import annotations

from collections.abc import Mapping


def api_server(environ: Mapping[str, str]) -> str:
    """The API server's URL, by the address that every pod is told: a name would need a DNS server.

    Raises KeyError outside of a pod.
    """
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ["KUBERNETES_SERVICE_PORT"]
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"
