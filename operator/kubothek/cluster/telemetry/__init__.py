"""What the operator tells: metrics, events, logs, traces, probes."""
