"""An API server of the benchmark's own: what an administrator asks of it, and what it wrote down about the operator."""

from __future__ import annotations

import asyncio
import json
import ssl
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.cluster.apiserver import ADMIN, OPERATOR, OPERATOR_USER, ApiServer

Object = dict[str, Any]

_AT_ONCE: Final = 24
_ATTEMPTS: Final = 10
"""With an API server that lags behind its own etcd, for instance."""
_WATCH: Final = aiohttp.ClientTimeout(total=None, sock_read=None)


class Audit:
    """The requests of one user, as the API server's audit log has them: each by verb and resource."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._offset = 0
        self._rest = b""

    def since(self) -> Counter[tuple[str, str]]:
        """What was asked since this was last called, such as ``("patch", "datasets/status")``."""
        found: Counter[tuple[str, str]] = Counter()
        for entry in self._entries():
            about = entry.get("objectRef") or {}
            sub = f"/{about['subresource']}" if "subresource" in about else ""
            found[entry["verb"], f"{about.get('resource', '')}{sub}"] += 1
        return found

    def _entries(self) -> Iterator[Object]:
        if not self._log.exists():
            return
        with self._log.open("rb") as log:
            log.seek(self._offset)
            data = self._rest + log.read()
            self._offset = log.tell()
        *lines, self._rest = data.split(b"\n")
        yield from map(json.loads, lines)


class Cluster:
    """An API server, seen by its administrator."""

    def __init__(self, server: ApiServer, audit: Audit, session: aiohttp.ClientSession) -> None:
        self.audit = audit
        self.kubeconfig = server.kubeconfig(OPERATOR)
        self._url = f"https://127.0.0.1:{server.port}"
        self._session = session

    async def request(self, method: str, path: str, body: object = None, content: str = "application/json") -> Object:
        """One request, again for as long as the server asks for patience; raises RuntimeError if it is refused."""
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content}
        left = _ATTEMPTS
        while True:
            async with self._session.request(method, self._url + path, data=data, headers=headers) as response:
                answer = dict(await response.json())
                if response.status < 400:
                    return answer
            left -= 1
            pause = answer.get("details", {}).get("retryAfterSeconds", 0)
            if not pause or not left:
                raise RuntimeError(f"{method} {path}: {answer}")
            await asyncio.sleep(pause)

    async def merge(self, path: str, patch: Object) -> Object:
        """Patch an object."""
        return await self.request("PATCH", path, patch, "application/merge-patch+json")

    async def create_all(self, objects: Iterable[tuple[str, Object]]) -> None:
        """Create objects at the paths of their lists, many at a time."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(path: str, obj: Object) -> None:
            async with gate:
                await self.request("POST", path, obj)

        await together(one(path, obj) for path, obj in objects)

    async def items(self, path: str) -> list[Object]:
        """All objects of a list."""
        found: list[Object] = []
        token = ""
        while True:
            page = await self.request("GET", f"{path}?limit=1000&continue={token}")
            found += page["items"]
            token = page["metadata"].get("continue", "")
            if not token:
                return found

    async def watch(self, path: str, labels: str) -> AsyncIterator[tuple[str, Object]]:
        """What there is, and whatever happens after that, for ever."""
        listed = await self.request("GET", f"{path}?labelSelector={labels}")
        for obj in listed["items"]:
            yield "ADDED", obj
        version = listed["metadata"]["resourceVersion"]
        while True:
            query = f"watch=true&labelSelector={labels}&resourceVersion={version}&allowWatchBookmarks=true"
            async with self._session.get(f"{self._url}{path}?{query}", timeout=_WATCH) as response:
                async for line in response.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"watching {path}: {event['object']}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield event["type"], event["object"]


async def together(what: Iterable[Awaitable[object]]) -> None:
    """All of it; the first error ends the others."""
    async with asyncio.TaskGroup() as group:
        for each in what:
            group.create_task(_done(each))


async def _done(what: Awaitable[object]) -> None:
    await what


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    """A fresh one, with the project's kinds, in which the operator may do everything."""
    with _audited() as (server, log):
        server.install_crds()
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "operator"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": OPERATOR_USER}],
        }
        server.apply("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/operator", binding)
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(server.ca)), limit=0)
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with aiohttp.ClientSession(connector=connector, headers=headers, read_bufsize=1 << 22) as session:
            yield Cluster(server, Audit(log), session)


@contextmanager
def _audited() -> Iterator[tuple[ApiServer, Path]]:
    """An API server that notes each request of the operator's user."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [{"level": "Metadata", "users": [OPERATOR_USER]}, {"level": "None"}],
    }
    with tempfile.TemporaryDirectory(prefix="kubothek-audit-") as directory:
        file, log = Path(directory) / "policy.json", Path(directory) / "audit.log"
        file.write_text(json.dumps(policy))
        with ApiServer(f"--audit-policy-file={file}", f"--audit-log-path={log}") as server:
            yield server, log
