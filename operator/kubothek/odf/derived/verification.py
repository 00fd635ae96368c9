"""Verification that the runs of a derivative dataset reproduce its data (VE-02)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kubothek.errors import InputDiverged, InputMissing, LakeError, StoreError, UnsupportedVersion
from kubothek.odf.chain import Stored, read_chain
from kubothek.odf.derived.inputs import Inputs, located
from kubothek.odf.derived.links import all_links
from kubothek.odf.derived.recorded import Past, Recorded, Unreadable, recorded
from kubothek.odf.derived.replay import NOT_REPLAYED, replay
from kubothek.odf.problems import Problem, Severity
from kubothek.odf.spec.events import SetTransform, TransformInput
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.storage import Store
from kubothek.storage.parallel import Spread


def verify_runs(
    store: Store, layout: Layout, head: Multihash, inputs: Inputs, spread: Spread, *, first_block: int = 0
) -> list[Problem]:
    """Return all problems of the runs of a sound chain, in its order: each is replayed on the input that it consumed.

    ``first_block``  blocks before it were verified already

    Raises StoreError.
    """
    blocks = read_chain(store, layout, head)
    try:
        history = RunsOf.chain(store, blocks, inputs)
    except (InputMissing, InputDiverged) as error:
        return [Problem(error.reason, "VE-02", str(error))]
    except StoreError:
        raise
    except LakeError as error:
        return [Problem("TransformFailed", "VE-02", f"the transformation cannot be run again: {error}")]
    found = replay(layout, [run for run in history.runs if run.number >= first_block], spread)
    if history.broken is not None:
        found.append(_broken(history.broken))
    first = {(each.code, each.message): each for each in reversed(found) if each.severity is Severity.NOTE}
    return [each for each in found if each.severity > Severity.NOTE or first[each.code, each.message] is each]


def _broken(run: Unreadable) -> Problem:
    why = Problem(run.error.reason, "VE-02", str(run.error), block=run.block, number=run.number)
    if isinstance(run.error, UnsupportedVersion):
        message = f"runs are not run again: {why.message}"
        return replace(why, code=NOT_REPLAYED, message=message, severity=Severity.NOTE)
    return why


@dataclass(frozen=True, slots=True)
class RunsOf:
    """The runs of a chain, oldest first, up to the first that cannot be replayed: ``broken``."""

    runs: tuple[Recorded, ...]
    broken: Unreadable | None

    @classmethod
    def chain(cls, store: Store, blocks: Sequence[Stored], inputs: Inputs) -> RunsOf:
        """Read the chains of all inputs. Raises InputMissing, InputDiverged, FormatInvalid, StoreError."""
        named = _inputs(blocks)
        pasts = {DatasetId.parse(each.dataset_ref): Past(all_links(store, located(inputs, each))) for each in named}
        found = [*recorded(blocks, pasts)]
        runs = tuple(each for each in found if isinstance(each, Recorded))
        return cls(runs, next((each for each in found if isinstance(each, Unreadable)), None))


def _inputs(blocks: Iterable[Stored]) -> list[TransformInput]:
    """Return the inputs of all transformations of the chain, each with its last alias."""
    events = (stored.decode().content.event for stored in blocks)
    named = {each.dataset_ref: each for event in events if isinstance(event, SetTransform) for each in event.inputs}
    return [*named.values()]
