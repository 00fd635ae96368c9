"""The operator's telemetry: metrics, events, logs, traces, probes."""
