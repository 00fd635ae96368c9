"""What became of an attempt, by what Kubernetes shows of its pod: pure functions."""
