"""Cluster and namespace of a command, and one connection to it."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from kubothek.cluster.api import Api

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class ClusterProblem(click.ClickException):
    """The cluster cannot be reached, or refused the request; exit code 1."""

    def show(self, file: Any = None) -> None:
        """Print one line to standard error, as every command does."""
        click.echo(f"error: {self.message}", err=True)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cluster that ``kubectl`` would use with the same options."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None
    """As given; None: the namespace of the context."""

    def run(self, work: Callable[[Api, str], Awaitable[T]]) -> T:
        """Call ``work(api, namespace)`` over one connection. Raises ClusterProblem."""
        try:
            from kubothek.cluster.api import ApiError, ApiUnavailable
        except ImportError as error:
            raise ClusterProblem(f"{error}: pip install 'kubothek[kubectl]' brings the client of clusters") from None

        async def connected() -> T:
            async with self._connection() as (api, namespace):
                return await work(api, namespace)

        try:
            return asyncio.run(connected())
        except ApiError as error:
            raise ClusterProblem(error.message.strip() or str(error)) from None
        except ApiUnavailable as error:
            raise ClusterProblem(f"the API server does not answer: {error}") from None

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[tuple[Api, str]]:
        from kubernetes.aio.config import ConfigException

        from kubothek.cluster.api import Api, default_namespace

        file = self.kubeconfig or os.environ.get("KUBECONFIG")
        try:
            namespace = self.namespace or default_namespace(file, self.context)
            api = await Api.connect(file, self.context)
        except (ConfigException, OSError) as error:
            raise ClusterProblem(f"no cluster is configured: {error}") from None
        try:
            yield api, namespace
        finally:
            await api.close()

    @property
    def kubectl(self) -> list[str]:
        """The same choice as options of ``kubectl``."""
        named = {"--kubeconfig": self.kubeconfig, "--context": self.context}
        return [f"{option}={value}" for option, value in named.items() if value is not None]


def cluster_options(command: F) -> F:
    """Add the options that select a cluster; the command receives them as ``cluster: Cluster``."""

    @functools.wraps(command)
    def wrapped(*args: Any, kubeconfig: str | None, context: str | None, namespace: str | None, **kwargs: Any) -> Any:
        return command(*args, cluster=Cluster(kubeconfig, context, namespace), **kwargs)

    for option in (
        click.option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, or ~/.kube/config."),
        click.option("--context", metavar="NAME", help="Of the kubeconfig; default: the current one."),
        click.option("-n", "--namespace", metavar="NAME", help="Default: that of the context."),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
