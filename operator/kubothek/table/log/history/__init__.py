"""The history of a dataset: versions, tags and snapshots."""
