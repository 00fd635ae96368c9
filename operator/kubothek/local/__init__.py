"""Local runtime over a directory of manifests: the same reconcilers, with jobs as subprocesses."""
