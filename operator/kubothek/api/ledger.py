"""``spec.ledger`` of a Dataset: its verifiable history, an Open Data Fabric chain, and what feeds it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from kubothek.api.ledger_events import EVENTS, checked_event, spellings
from kubothek.api.meta import Lenient, Strict, Time
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
"""An event as a DatasetSnapshot of Open Data Fabric has it in its ``metadata``."""


def _of_kind(ledger: Ledger, *kinds: str) -> list[dict[str, Any]]:
    return [event for event in ledger.metadata if event["kind"] in kinds]


def _cel(kinds: tuple[str, ...]) -> str:
    """Events of these kinds, in whichever spelling."""
    names = ", ".join(repr(kind.lower()) for kind in kinds)
    return f"(has(self.metadata) ? self.metadata : []).filter(e, e.kind.lowerAscii() in [{names}])"


_SINGLE = tuple(kind for kind in EVENTS.members if kind != "AddPushSource")


class Ledger(Strict):
    """The table is the current state of a chain of events, to which sources append."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.kind != 'Copy' || !(has(self.metadata) && self.metadata.size() > 0 || has(self.schedule) || "
            "has(self.envSecretRef) || has(self.identitySecretRef))",
            message="the chain of a ledger of kind Copy is another party's, and comes as it is: remove metadata, "
            "schedule, envSecretRef and identitySecretRef",
            holds=lambda self: (
                self.kind != "Copy"
                or not (self.metadata or self.schedule or self.env_secret_ref or self.identity_secret_ref)
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
            "is made of its inputs alone, remove the source",
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
    """Immutable. Root: data comes from outside. Derivative: it is made of other ledgers of the same store by the SQL
    of its SetTransform. Copy: the chain is another party's, which a Sync pulls, or they push to a gateway; nothing
    else is ever appended to it here."""
    metadata: Annotated[tuple[Event, ...], Field(max_length=64)] = ()
    """A job on edit. The events of an Open Data Fabric DatasetSnapshot: where data comes from and how it is merged, and
    what the dataset is about. An edit appends events to the chain; a source that is removed is disabled, everything
    else that is removed stays as it was."""
    identity_secret_ref: Annotated[
        ObjectReference | None,
        Immutable("ledger.identitySecretRef cannot change, as the chain names its key: create another Dataset"),
    ] = None
    """Immutable. The Secret whose key `ed25519` holds the 32 bytes of the private key that proves the identity of the
    dataset, raw or in base64. Default: `<name>-identity`, which the operator makes. Keep a copy."""
    env_secret_ref: ObjectReference | None = None
    """Takes effect at the next poll. The Secret whose keys are the variables that urls and headers of the polling
    source may name: `${{ env.NAME }}`. Variables of its container that have no value are of it, too."""
    fetch_uncacheable: bool = False
    """Takes effect at the next poll. True: a source that does not say whether it changed, such as a web server without
    ETag and Last-Modified, is read at every poll. False: only the first time, as nobody knows if it is new."""
    schedule: Schedule | None = None
    """Takes effect at once. When to poll; without it the source is polled once for each edit, and on request. Of a
    derivative: when to look for what is new in its inputs; without it, it follows them at once."""
    transform: Transform | None = None
    """Takes effect at once. Of a derivative: when it runs, and what happens when its inputs or its SQL are others."""
    types: Annotated[
        Literal["Kamu", "Spec"],
        Immutable("ledger.types cannot change, as the columns of the chain have them: create another Dataset"),
    ] = "Kamu"
    """Immutable. The types of the columns `offset` and `op`. Kamu: int64 and int32, as kamu-cli writes them. Spec:
    uint64 and uint8, as the specification says."""
    view: Annotated[
        Literal["Table", "None"],
        Immutable("ledger.view cannot change, as the chain's state lies by it: create another Dataset"),
    ] = "Table"
    """Immutable. Table: the current state is kept as a table, laid out as spec.table says. None: there is the chain
    only, and whatever asks for the state reads all of it."""

    @property
    def polling(self) -> bool:
        """Whether it has a polling source."""
        return bool(_of_kind(self, "SetPollingSource"))

    @property
    def inputs(self) -> tuple[str, ...]:
        """What it is derived from: names of Datasets, or identities."""
        return tuple(each["datasetRef"] for event in _of_kind(self, "SetTransform") for each in event["inputs"])

    @property
    def engine(self) -> str | None:
        """The engine that its transformation asks for."""
        return next((event["transform"]["engine"] for event in _of_kind(self, "SetTransform")), None)

    @property
    def following(self) -> Transform:
        """When it runs, if it is a derivative."""
        return self.transform or Transform()

    @property
    def fetch(self) -> dict[str, Any] | None:
        """The fetch step of its polling source."""
        return next((event["fetch"] for event in _of_kind(self, "SetPollingSource")), None)

    @property
    def push_sources(self) -> tuple[str, ...]:
        """The names of its push sources."""
        return tuple(event["sourceName"] for event in _of_kind(self, "AddPushSource"))


class LedgerSource(Lenient):
    """How far a source of the chain was read."""

    name: str
    """The source."""
    kind: str = ""
    """What its state is, such as `odf/etag`."""
    value: str = ""
    """The state."""


class LedgerState(Lenient):
    """The chain, as a job saw it."""

    id: str | None = None
    """The identity of the dataset: `did:odf:…`."""
    head: str | None = None
    """The hash of the last block."""
    blocks: int = 0
    """How many blocks there are."""
    records: int = 0
    """How many records were ever appended: retractions and corrections count as well."""
    watermark: Time | None = None
    """Up to this event time the data is said to be complete."""
    system_time: Time | None = None
    """When the last block was made."""
    last_slice: str | None = None
    """The hash of the last file of records."""
    sources: Annotated[tuple[LedgerSource, ...], Field(max_length=64)] = ()
    """How far its sources were read."""
    inputs: Annotated[tuple[LedgerInput, ...], Field(max_length=64)] = ()
    """How far it has read its inputs, if it is a derivative."""
