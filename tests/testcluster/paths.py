"""Where the test cluster keeps things: the checkout, the cache of what was built, the state of the running node."""

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = Path(__file__).resolve().parent


def cache_root() -> Path:
    """The directory of everything expensive to make. Outside the checkout, so that a clean checkout starts warm."""
    configured = os.environ.get("KUBOTHEK_CACHE")
    return Path(configured).expanduser().resolve() if configured else Path.home() / ".cache" / "kubothek"


def run_root() -> Path:
    """The state of the running node: certificates, configurations, logs, etcd's and containerd's data."""
    return cache_root() / "cluster"
