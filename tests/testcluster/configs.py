"""The configuration files of containerd, CNI, kubelet and kube-proxy. Pure: everything is computed from the layout."""

import json

import yaml

from tests.testcluster.layout import CNI_NETWORK, NODE_IP, NODE_NAME, PAUSE_IMAGE, POD_CIDR, Layout


def containerd(layout: Layout) -> str:
    """containerd's config.toml."""
    return f"""\
version = 2
root = "{layout.images}"
state = "{layout.run / "containerd"}"

[grpc]
  address = "{layout.containerd_socket}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{layout.run / "opt"}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE no process may lower its oom_score_adj, and every sandbox would die at once.
  restrict_oom_score_adj = true
  # So that what is left of a killed run is found in one place.
  netns_mounts_under_state_dir = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{layout.etc / "cni"}"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
      Root = "{layout.run / "runc"}"
"""


def cni(layout: Layout) -> str:
    """The pod network.

    Each pod has a cable of its own to the host, rather than a port of a common bridge: traffic between two pods of the
    node then always passes the host's NAT, so that services work without bridge netfilter.
    """
    ptp = {
        "type": "ptp",
        "ipMasq": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": POD_CIDR}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(layout.run / "cni"),
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": CNI_NETWORK, "plugins": [ptp, portmap]}, indent=2)


def kubelet(layout: Layout) -> str:
    """The kubelet's configuration: an ordinary node's, but for what a container-like machine cannot do."""
    return _yaml(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(layout.pki / "kubelet.crt"),
            "tlsPrivateKeyFile": str(layout.pki / "kubelet.key"),
            "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
            "podLogsDir": str(layout.run / "pod-logs"),
            "volumePluginDir": str(layout.run / "volume-plugins"),
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            # No registry could bring an image back: never collect one, and do not evict for a full disk before
            # the disk is really full.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "serializeImagePulls": False,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
        }
    )


def scheduler(layout: Layout) -> str:
    """The scheduler's configuration: on a full node, who has waited long comes before who has just come."""
    return _yaml(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(layout.component_kubeconfig("kube-scheduler"))},
            "leaderElection": {"leaderElect": False},
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 1,
        }
    )


def kube_proxy(layout: Layout) -> str:
    """kube-proxy's configuration."""
    return _yaml(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(layout.component_kubeconfig("kube-proxy"))},
            "hostnameOverride": NODE_NAME,
            "mode": "iptables",
            "clusterCIDR": POD_CIDR,
            "bindAddress": NODE_IP,
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            # The limit of tracked connections belongs to the machine, and may not be ours to set.
            "conntrack": {"maxPerCore": 0},
            "iptables": {"minSyncPeriod": "0s"},
        }
    )


def _yaml(document: dict[str, object]) -> str:
    return yaml.safe_dump(document, sort_keys=False)
