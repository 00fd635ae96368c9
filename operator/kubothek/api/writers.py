"""Writers of a Dataset beside its manifests."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.meta import OBJECT_NAME_PATTERN, Strict
from kubothek.api.rules import Rule

_ObjectName = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=OBJECT_NAME_PATTERN)]
WriterOperation = Literal[
    "Append", "Replace", "Overwrite", "Delete", "Update", "Merge", "Rollback", "Compact", "Index", "Tag"
]


class Writer(Strict):
    """A client of the library that may commit to the table."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.serviceAccount) != has(self.name)",
            message="a writer has one identity: set serviceAccount for pods of a cluster, or name for other clients",
            holds=lambda self: (self.service_account is None) != (self.name is None),
        ),
        Rule(
            cel="!has(self.namespace) || has(self.serviceAccount)",
            message="namespace is that of a serviceAccount: remove it, or set serviceAccount",
            holds=lambda self: self.namespace is None or self.service_account is not None,
        ),
    )

    service_account: _ObjectName | None = None
    """The ServiceAccount of its pods. The library finds it in the pod."""
    namespace: _ObjectName | None = None
    """The namespace of serviceAccount; default: that of the Dataset."""
    name: (
        Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[a-zA-Z0-9]([-a-zA-Z0-9_.@/]*)$")]
        | None
    ) = None
    """The name that a client outside of a cluster gives: `kubothek.open(url, writer=NAME)`, or KUBOTHEK_WRITER."""
    operations: Annotated[tuple[WriterOperation, ...], Field(min_length=1, max_length=10)]
    """What it may commit. Index sets skipping metadata, and Tag sets tags; fields of the manifest have priority."""

    def identity(self, namespace: str) -> str:
        """Return the name by which the library knows the writer of a Dataset in this namespace."""
        if self.service_account is None:
            return self.name or ""
        return f"system:serviceaccount:{self.namespace or namespace}:{self.service_account}"
