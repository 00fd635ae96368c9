"""Facts about the cluster from the environment of a pod."""

from __future__ import annotations

from collections.abc import Mapping


def api_server(environ: Mapping[str, str]) -> str:
    """Return the API server's URL, with the address from the pod's environment: a name would need a DNS server.

    Raises KeyError outside of a pod.
    """
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ["KUBERNETES_SERVICE_PORT"]
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"
