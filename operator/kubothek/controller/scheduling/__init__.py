"""Scheduling of jobs: when one may start, how its attempts are evaluated and retried, and how long runs are kept."""
