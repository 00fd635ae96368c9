"""A real single-node Kubernetes cluster with an S3 server, for tests and demos. See docs/cluster.md.

cluster = ensure_cluster()
cluster.run_kubectl("apply", "-f", "manifests.yaml")
cluster.restart("kube-apiserver")
"""

from tests.testcluster.base import Cluster
from tests.testcluster.ensure import ensure_cluster, find_cluster, why_no_cluster
from tests.testcluster.images import JOB_IMAGE, OPERATOR_IMAGE

__all__ = ["JOB_IMAGE", "OPERATOR_IMAGE", "Cluster", "ensure_cluster", "find_cluster", "why_no_cluster"]
