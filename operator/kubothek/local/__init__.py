"""The world behind a directory of manifests: the same reconcilers, with jobs as subprocesses."""
