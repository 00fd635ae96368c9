"""``spec.ledger`` of a Dataset: its verifiable history, an Open Data Fabric chain, and its sources."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from kubothek.api.ledger_events import EVENTS, checked_event, spellings
from kubothek.api.meta import Lenient, Strict, Time
from kubothek.api.observed import LedgerSource
from kubothek.api.rules import Immutable, Rule
from kubothek.api.schedules import Schedule
from kubothek.api.transforms import LedgerInput, Transform
from kubothek.api.values import ObjectReference

IDENTITY_KEY = "ed25519"
"""The key of an identity's Secret."""

Event = Annotated[
    dict[str, Any],
    AfterValidator(checked_event),
    WithJsonSchema(
        {
            "type": "object",
            "description": "An event. `kind` says which, and so which other fields it has: docs/ledger.md.",
            "required": ["kind"],
            "properties": {
                "kind": {
                    "type": "string",
                    "enum": [spelling for kind in EVENTS.members for spelling in spellings(kind)],
                    "description": f"One of {', '.join(EVENTS.members)}.",
                }
            },
            "x-kubernetes-preserve-unknown-fields": True,
        }
    ),
]
"""An event in the form of ``metadata`` of an Open Data Fabric DatasetSnapshot."""


def _of_kind(ledger: Ledger, *kinds: str) -> list[dict[str, Any]]:
    return [event for event in ledger.metadata if event["kind"] in kinds]


def _cel(kinds: tuple[str, ...]) -> str:
    """Return a CEL expression for the events of these kinds, in any spelling."""
    names = ", ".join(repr(kind.lower()) for kind in kinds)
    return f"(has(self.metadata) ? self.metadata : []).filter(e, e.kind.lowerAscii() in [{names}])"


_SINGLE = tuple(kind for kind in EVENTS.members if kind != "AddPushSource")


class Ledger(Strict):
    """A chain of events to which sources append; the table is its current state."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.kind != 'Copy' || !(has(self.metadata) && self.metadata.size() > 0 || has(self.schedule) || "
            "has(self.envSecretRef) || has(self.identitySecretRef) || has(self.specVersion))",
            message="the chain of a ledger of kind Copy belongs to another party: remove metadata, "
            "schedule, envSecretRef, identitySecretRef and specVersion",
            holds=lambda self: (
                self.kind != "Copy"
                or not (
                    self.metadata
                    or self.schedule
                    or self.env_secret_ref
                    or self.identity_secret_ref
                    or self.spec_version
                )
            ),
        ),
        Rule(
            cel="self.kind == 'Copy' || has(self.metadata)",
            message="a ledger of its own needs metadata: its events, such as AddPushSource; or write kind: Copy",
            holds=lambda self: self.kind == "Copy" or "metadata" in self.model_fields_set,
        ),
        Rule(
            cel=" && ".join(f"{_cel((kind,))}.size() <= 1" for kind in _SINGLE),
            message="ledger.metadata has two events of a kind of which the last one alone counts: remove the other "
            "(several AddPushSource with different names are well)",
            holds=lambda self: all(len(_of_kind(self, kind)) <= 1 for kind in _SINGLE),
        ),
        Rule(
            cel=f"{_cel(('SetPollingSource',))}.size() == 0 || {_cel(('AddPushSource',))}.size() == 0",
            message="ledger.metadata has SetPollingSource and AddPushSource, which exclude each other: remove one",
            holds=lambda self: not (_of_kind(self, "SetPollingSource") and _of_kind(self, "AddPushSource")),
        ),
        Rule(
            cel=f"!has(self.schedule) || {_cel(('SetPollingSource', 'SetTransform'))}.size() == 1",
            message="ledger.schedule says when to poll or to transform, and there is no SetPollingSource and no "
            "SetTransform: add one, or remove it",
            holds=lambda self: self.schedule is None or bool(_of_kind(self, "SetPollingSource", "SetTransform")),
        ),
        Rule(
            cel=f"self.kind != 'Derivative' || {_cel(('SetPollingSource', 'AddPushSource'))}.size() == 0",
            message="ledger.kind is Derivative, and ledger.metadata has a source, which only a Root has: a derivative "
            "has only inputs: remove the source",
            holds=lambda self: self.kind != "Derivative" or not _of_kind(self, "SetPollingSource", "AddPushSource"),
        ),
        Rule(
            cel=f"(self.kind == 'Derivative') == ({_cel(('SetTransform',))}.size() > 0)",
            message="a ledger of kind Derivative has one SetTransform in ledger.metadata, and a Root has none: set "
            "ledger.kind, or correct the events",
            holds=lambda self: (self.kind == "Derivative") == bool(_of_kind(self, "SetTransform")),
        ),
        Rule(
            cel="!has(self.transform) || self.kind == 'Derivative'",
            message="ledger.transform goes with ledger.kind Derivative: remove it",
            holds=lambda self: self.transform is None or self.kind == "Derivative",
        ),
    )

    kind: Annotated[
        Literal["Root", "Derivative", "Copy"],
        Immutable("ledger.kind cannot change, as the chain begins with it: create another Dataset"),
    ] = "Root"
    """Immutable. Root: data comes from outside. Derivative: the SQL of its SetTransform derives it from other ledgers
    of the same store. Copy: the chain belongs to another party, and only a Sync or a push to a gateway adds to it."""
    metadata: Annotated[tuple[Event, ...], Field(max_length=64)] = ()
    """A job on edit. The events of an Open Data Fabric DatasetSnapshot: sources, merge strategies, and information
    about the dataset. An edit appends events to the chain. A removed source is disabled; other removed events stay in
    effect."""
    identity_secret_ref: Annotated[
        ObjectReference | None,
        Immutable("ledger.identitySecretRef cannot change, as the chain names its key: create another Dataset"),
    ] = None
    """Immutable. The Secret whose key `ed25519` holds the private key of the dataset's identity: 32 bytes, raw or in
    base64. Default: `<name>-identity`, which the operator creates. Keep a copy."""
    env_secret_ref: ObjectReference | None = None
    """Takes effect at the next poll. The Secret with the variables for urls and headers of the polling source:
    `${{ env.NAME }}`. Variables of its container without a value come from it, too."""
    fetch_uncacheable: bool = False
    """Takes effect at the next poll. For a source without cache validators, such as a web server without ETag and
    Last-Modified. True: read it at every poll. False: read it only once, as changes cannot be detected."""
    schedule: Schedule | None = None
    """Takes effect at once. When to poll; without it, once for each edit, and on request. For a derivative: when to
    process new data of its inputs; without it, at once."""
    transform: Transform | None = None
    """Takes effect at once. For a derivative: when it runs, and what happens when its inputs or its SQL change."""
    types: Annotated[
        Literal["Kamu", "Spec"],
        Immutable("ledger.types cannot change, as the columns of the chain have them: create another Dataset"),
    ] = "Kamu"
    """Immutable. The types of the columns `offset` and `op`. Kamu: int64 and int32, as in kamu-cli. Spec: uint64 and
    uint8, as in the specification."""
    spec_version: Literal["0.34", "0.35", "0.36", "0.37", "0.38", "0.39"] | None = None
    """A job on edit. The version of the Open Data Fabric specification in which new blocks are written; older blocks
    stay as they are. 0.34: Arrow schemas and manifests of version 2, for readers before kamu 0.248. From 0.37: ODF
    schemas and manifests of version 3. Default: what the chain has; a new chain: 0.39."""
    view: Annotated[
        Literal["Table", "None"],
        Immutable("ledger.view cannot change: it is the layout of the existing table; create another Dataset"),
    ] = "Table"
    """Immutable. Table: the current state is kept as a table with the layout of spec.table. None: there is only the
    chain, and each query of the state reads all of it."""

    @property
    def polling(self) -> bool:
        """Whether it has a polling source."""
        return bool(_of_kind(self, "SetPollingSource"))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of a derivative: names of Datasets, or identities."""
        return tuple(each["datasetRef"] for event in _of_kind(self, "SetTransform") for each in event["inputs"])

    @property
    def engine(self) -> str | None:
        """The engine that its transformation names, if any."""
        return next((event["transform"]["engine"] for event in _of_kind(self, "SetTransform")), None)

    @property
    def following(self) -> Transform:
        """When it runs and how it reacts to changes, if it is a derivative."""
        return self.transform or Transform()

    @property
    def fetch(self) -> dict[str, Any] | None:
        """The fetch step of its polling source, if any."""
        return next((event["fetch"] for event in _of_kind(self, "SetPollingSource")), None)

    @property
    def push_sources(self) -> tuple[str, ...]:
        """The names of its push sources."""
        return tuple(event["sourceName"] for event in _of_kind(self, "AddPushSource"))


class LedgerState(Lenient):
    """The chain, as a job observed it."""

    id: str | None = None
    """The identity of the dataset: `did:odf:…`."""
    head: str | None = None
    """The hash of the last block."""
    blocks: int = 0
    """Number of blocks."""
    records: int = 0
    """Number of records appended ever, including retractions and corrections."""
    watermark: Time | None = None
    """The watermark: the event time up to which the data is declared complete."""
    system_time: Time | None = None
    """When the last block was created."""
    last_slice: str | None = None
    """The hash of the last file of records."""
    sources: Annotated[tuple[LedgerSource, ...], Field(max_length=64)] = ()
    """The read positions of its sources."""
    inputs: Annotated[tuple[LedgerInput, ...], Field(max_length=64)] = ()
    """Its read positions in its inputs, if it is a derivative."""
