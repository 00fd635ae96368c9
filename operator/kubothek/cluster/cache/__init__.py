"""The observed state of the cluster, and the resources that depend on a change. All of it may be lost at any time."""
