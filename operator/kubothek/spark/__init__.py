"""Spark: the session of a job, and the distributed write."""
