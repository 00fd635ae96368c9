"""The job as a part of a trace, if whoever launched it says of which, and where to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kubothek.tracing import Place, Span, process, sending
from kubothek.tracing.ids import VARIABLE
from kubothek.tracing.sending import ENDPOINT


@contextmanager
def traced(environ: Mapping[str, str] = os.environ) -> Iterator[Span]:
    """The span of all that the job does. What it still has to tell is sent when the context ends: leave the result
    before, so that nobody waits for a collector.
    """
    parent = Place.of_header(environ.get(VARIABLE, ""))
    if parent is None or not (endpoint := environ.get(ENDPOINT)):
        yield Span()
        return
    with sending(endpoint, "kubothek-job"), process("job", parent) as span:
        yield span
