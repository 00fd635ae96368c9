"""Commits that cannot be, all applied at once: they fail side by side, some of them after a while."""

from __future__ import annotations

from tests.e2e import manifests
from tests.e2e.kubectl import Manifest
from tests.e2e.workspace import Workspace

# What is wrong → the manifests, the reason, and what the message must name.
COMMITS: dict[str, tuple[list[Manifest], str, tuple[str, ...]]] = {
    "no-such-file": (
        [manifests.commit("no-such-file", "rows", "sources/absent.csv")],
        "SourceNotFound",
        ("sources/absent.csv",),
    ),
    "empty-file": (
        [manifests.commit("empty-file", "rows", "sources/empty.csv")],
        "SourceEmpty",
        ("sources/empty.csv",),
    ),
    "wrong-type": (
        [manifests.commit("wrong-type", "rows", "sources/wrong.csv")],
        "DataTypeMismatch",
        ("sources/wrong.csv", "'x'", "row 2", "'two'"),
    ),
    "no-partition-column": (
        [manifests.commit("no-partition-column", "rows", "sources/unpartitioned.csv")],
        "SchemaMismatch",
        ("'p'",),
    ),
    "null-partition": (
        [manifests.commit("null-partition", "rows", "sources/null.csv")],
        "PartitionInvalid",
        ("'p'", "null"),
    ),
    "no-dataset": (
        [manifests.commit("no-dataset", "absent", "sources/good.csv")],
        "DatasetNotFound",
        ("absent",),
    ),
    "no-image": (
        [
            manifests.engine("no-image", image="docker.io/kubothek/no-such-image:v1"),
            manifests.commit("no-image", "more-rows", "sources/good.csv", engineRef={"name": "no-image"}),
        ],
        "ImagePullFailed",
        ("docker.io/kubothek/no-such-image:v1",),
    ),
}


def commit_all(place: Workspace) -> bytes | None:
    """One good commit first, then all of these. The head that they meet."""
    place.prepare()
    place.put_rows("sources/good.csv", first=0)
    place.put("sources/empty.csv", b"")
    place.put("sources/wrong.csv", b"x,p,text\n1,1,one\ntwo,0,two\n3,1,three\n")
    place.put("sources/unpartitioned.csv", b"x,text\n1,one\n")
    place.put("sources/null.csv", b"x,p,text\n1,,one\n")
    place.kubectl.apply(
        manifests.dataset("rows", ["p"]),
        manifests.dataset("more-rows", ["p"]),
        manifests.commit("good", "rows", "sources/good.csv"),
    )
    place.kubectl.wait_for("Ready", "kcm/good")
    head = place.head("rows")
    place.kubectl.apply(*(manifest for wrong, _, _ in COMMITS.values() for manifest in wrong))
    return head
