"""Where the log of a job is: a URL of the operator's, with the places that depend on the job filled in."""

from __future__ import annotations

from datetime import datetime

PLACES = ("{namespace}", "{pod}", "{start}", "{end}")
"""What a template may have; times are milliseconds since 1970, and the end of what goes on is ``now``, as Grafana reads
them.
"""


def log_link(template: str, namespace: str, pod: str, start: datetime, end: datetime | None) -> str | None:
    """The URL of a job's log; None if nobody said where logs are. Names of the cluster need no quoting in URLs."""
    if not template:
        return None
    values = (namespace, pod, _milliseconds(start), "now" if end is None else _milliseconds(end))
    for place, value in zip(PLACES, values, strict=True):
        template = template.replace(place, value)
    return template


def _milliseconds(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1000))
