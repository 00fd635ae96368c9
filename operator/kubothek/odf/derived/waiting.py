"""The unconsumed blocks of a derivative dataset's inputs, and what prevents a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kubothek.errors import InputDiverged, InputMissing, LakeError, StoreError
from kubothek.odf.derived.batching import Waiting, is_moved
from kubothek.odf.derived.inputs import Input, Inputs, located
from kubothek.odf.derived.links import Link, Shape, new_links, watermark_at
from kubothek.odf.spec.events import TransformInput
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.state import ChainState, Consumed
from kubothek.storage import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A reason why a transformation cannot run; ``code`` is stable API, ``input`` the alias of the input."""

    code: str
    message: str
    input: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Unconsumed input.

    ``records``   of all inputs, in ``blocks`` blocks and ``bytes`` bytes of slices
    ``moved``     whether there is anything to do: records, or a higher watermark
    ``oldest``    system time of the first unconsumed block with records
    ``reshaped``  inputs whose columns change in these blocks
    ``troubles``  one for each input that cannot be read
    ``empty``     inputs that never had data, which prevent a run (DT-05)
    """

    records: int = 0
    blocks: int = 0
    bytes: int = 0
    moved: bool = False
    oldest: Timestamp | None = None
    reshaped: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    empty: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Return whether a run would find something to do."""
        return self.moved and not self.troubles and not self.empty


@dataclass(frozen=True, slots=True)
class _Seen:
    """Blocks of an input after ``after`` up to ``head``, and its columns before them."""

    after: Multihash | None
    head: Multihash
    shape: Shape
    links: list[Link]


Seen: TypeAlias = dict[DatasetId, _Seen]
"""Cache of blocks read from inputs, so that consecutive runs do not read all unconsumed blocks again."""


def all_waiting(store: Store, state: ChainState, inputs: Inputs, seen: Seen) -> list[Waiting]:
    """Return unconsumed blocks of all inputs of the transformation. Raises InputMissing, InputDiverged, StoreError."""
    return [one_waiting(store, state, located(inputs, each), each, seen) for each in _inputs(state)]


def one_waiting(store: Store, state: ChainState, source: Input, named: TransformInput, seen: Seen) -> Waiting:
    """Return unconsumed blocks of one input. Raises InputMissing, InputDiverged, StoreError."""
    consumed = state.consumed.get(source.id, Consumed())
    shape, links = _since(store, source, consumed.block, seen)
    now = source.chain.state
    return Waiting(
        id=source.id,
        alias=named.alias or named.dataset_ref,
        consumed=consumed,
        links=links,
        shape=shape,
        last_offset=now.last_offset,
        previous_watermark=watermark_at(store, source.layout, consumed.block) if links else now.watermark,
    )


def _since(store: Store, source: Input, after: Multihash | None, seen: Seen) -> tuple[Shape, list[Link]]:
    known = seen.get(source.id)
    if known is not None and known.head == source.head:
        if known.after == after:
            return known.shape, known.links
        place = next((place for place, link in enumerate(known.links, 1) if link.block == after), None)
        if place is not None:
            return known.links[place - 1].shape, known.links[place:]
    shape, links = new_links(store, source, after)
    seen[source.id] = _Seen(after, source.head, shape, links)
    return shape, links


def pending(store: Store, state: ChainState, inputs: Inputs, seen: Seen) -> Pending:
    """Return unconsumed input, with errors of inputs as data. Reads blocks only, no records. Raises StoreError."""
    found: list[Waiting] = []
    troubles: list[Trouble] = []
    for each in _inputs(state):
        try:
            found.append(one_waiting(store, state, located(inputs, each), each, seen))
        except StoreError:
            raise
        except (InputMissing, InputDiverged, LakeError) as error:
            troubles.append(Trouble(code=error.reason, message=str(error), input=each.alias))
    with_data = [link for each in found for link in each.links if link.part is not None]
    return Pending(
        records=sum(link.records for link in with_data),
        blocks=len(with_data),
        bytes=sum(link.bytes for link in with_data),
        moved=is_moved(found, state.watermark),
        oldest=min((link.system_time for link in with_data), default=None),
        reshaped=tuple(each.alias for each in found if _is_reshaped(each)),
        troubles=tuple(troubles),
        empty=tuple(each.alias for each in found if each.last_offset is None),
    )


def _inputs(state: ChainState) -> Sequence[TransformInput]:
    return state.transform.inputs if state.transform is not None else ()


def _is_reshaped(each: Waiting) -> bool:
    shapes: list[Shape] = [each.shape, *(link.shape for link in each.links)]
    return any(one.schema is not None and one != each.links[-1].shape for one in shapes) if each.links else False
