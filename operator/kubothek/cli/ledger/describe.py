"""The part of ``kubothek describe`` about a chain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubothek.odf.dataset import Ledger
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.sources import (
    FetchStep,
    FetchStepContainer,
    FetchStepFilesGlob,
    FetchStepMqtt,
    FetchStepUrl,
    TransformSql,
)
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.words import count

_LONGEST_VALUE: Final = 120
"""Characters of a source state that are shown: that of an MQTT source names up to thousands of messages."""


def chain_lines(store: Store, log: DatasetLog) -> Iterator[str]:
    """Yield the chain's identity, its head, and its sources with how far they were read."""
    root = Ledger(store, log)
    state = root.state
    records = count(state.next_offset, "record")
    for name, value in (
        ("Identity", str(state.seed.dataset_id) if state.seed is not None else None),
        ("Head", str(state.head)),
        (
            "Length",
            f"{count(state.length, 'block')}, {count(state.next_offset, 'record')}, the last at {state.system_time}",
        ),
        ("Watermark", str(state.watermark) if state.watermark is not None else None),
        ("About", root.info.description if root.info is not None else None),
        ("Licence", root.license.name if root.license is not None else None),
    ):
        if value is not None:
            yield f"{name + ':':<12}{value}"
    if (polling := state.polling_source) is not None:
        place = _place(polling.fetch)
        yield f"{'Polls:':<12}{place} ({polling.read.kind}), merged by {polling.merge.kind}"
    for push in state.push_sources.values():
        yield f"{'Takes:':<12}{push.source_name} ({push.read.kind}), merged by {push.merge.kind}"
    if state.transform is not None:
        yield f"{'Made of:':<12}{', '.join(each.alias or each.dataset_ref for each in state.transform.inputs)}"
        for named in state.transform.inputs:
            read = state.consumed.get(DatasetId.parse(named.dataset_ref))
            if read is not None and read.block is not None:
                records = count(0 if read.offset is None else read.offset + 1, "record")
                yield f"{'Read:':<12}{named.alias or named.dataset_ref}, {records}, up to block {read.block}"
        sql = state.transform.transform
        for step in (sql.queries or ()) if isinstance(sql, TransformSql) else ():
            yield f"{f'{step.alias}:' if step.alias else 'SQL:':<12}{' '.join(step.query.split())}"
    for each in state.source_states.values():
        value = each.value if len(each.value) <= _LONGEST_VALUE else f"{each.value[:_LONGEST_VALUE]}…"
        yield f"{'Read:':<12}{each.source_name}, up to {each.kind} {value}"


def _place(fetch: FetchStep) -> str:
    match fetch:
        case FetchStepUrl():
            return fetch.url
        case FetchStepFilesGlob():
            return fetch.path
        case FetchStepContainer():
            return f"container {fetch.image}"
        case FetchStepMqtt():
            return f"mqtt://{fetch.host}:{fetch.port} {', '.join(topic.path for topic in fetch.topics)}"
    return fetch.kind
