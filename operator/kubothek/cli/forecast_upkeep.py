"""Forecast for maintenance of Datasets: compaction and garbage collection, from metadata only."""

from __future__ import annotations

from collections.abc import Iterator

from kubothek.api.compaction import Compaction
from kubothek.api.conditions import state_of
from kubothek.api.dataset import Dataset
from kubothek.api.gcpolicy import GCPolicy
from kubothek.api.maintenance import Thresholds
from kubothek.api.values import parse_quantity
from kubothek.api.verification import Verification
from kubothek.cli.forecast_stores import Stores, wrong
from kubothek.cli.steps import Step, Verb
from kubothek.controller.kinds.targets import matcher
from kubothek.controller.references import clustering_of
from kubothek.controller.scheduling.schedule import fault
from kubothek.errors import DatasetDeleted, DatasetNotFound, LakeError
from kubothek.jobs.translate import clustering
from kubothek.local.manifests import Key
from kubothek.storage import Store
from kubothek.table.expressions import parse
from kubothek.table.log import DatasetLog
from kubothek.table.maintenance import Wish, plan_compaction
from kubothek.words import count


class Upkeep(Stores):
    """The steps of Compactions, Verifications and GCPolicies, and of the maintenance in Datasets."""

    def _compaction_step(self, key: Key, compaction: Compaction) -> Step:
        """Return what a Compaction would rewrite now; Commits run first, and may add more."""
        dataset_key = Key("Dataset", key.namespace, compaction.spec.dataset_ref.name)
        dataset = self._applied.resources.get(dataset_key)
        state = state_of(compaction.status)
        if state is not None and state.ended == "Complete":
            return Step(key, Verb.KEEP, state.message)
        if not isinstance(dataset, Dataset):
            return Step(key, Verb.BLOCKED, f"needs {dataset_key}, {wrong(None)}")
        if compaction.spec.suspend:
            return Step(key, Verb.SUSPENDED, "spec.suspend is true")
        found = self._worth_rewriting(dataset, compaction.spec, compaction.spec.where)
        if isinstance(found, LakeError):
            return Step(key, Verb.BLOCKED, f"{found.reason}: {str(found).partition(chr(10))[0]}")
        if found is not None:
            verb = Verb.KEEP if compaction.spec.dry_run else Verb.CHANGE
            return Step(key, verb, f"{found[0]} of {dataset_key} {found[1]}")
        return Step(key, Verb.KEEP, f"no file of {dataset_key} is worth rewriting yet")

    def _verification_step(self, key: Key, verification: Verification) -> Step:
        dataset_key = Key("Dataset", key.namespace, verification.spec.dataset_ref.name)
        state = state_of(verification.status)
        if state is not None and state.ended == "Complete":
            return Step(key, Verb.KEEP, state.message)
        if not isinstance(self._applied.resources.get(dataset_key), Dataset):
            return Step(key, Verb.BLOCKED, f"needs {dataset_key}, {wrong(None)}")
        if verification.spec.suspend:
            return Step(key, Verb.SUSPENDED, "spec.suspend is true")
        return Step(key, Verb.KEEP, f"reads what was committed to {dataset_key}, and changes nothing")

    def _upkeep_steps(self, key: Key, dataset: Dataset) -> Iterator[Step]:
        """Yield what the Dataset's own compaction would rewrite now; Commits run first, and may add more."""
        wish = dataset.spec.maintenance.compaction
        if wish is None:
            return
        problem = None if wish.schedule is None else fault(wish.schedule)
        if problem is not None:
            yield Step(key, Verb.BLOCKED, f"InvalidSchedule: maintenance.compaction.schedule: {problem}")
        elif dataset.spec.suspend:
            yield Step(key, Verb.SUSPENDED, "its small files are left as they are")
        else:
            found = self._worth_rewriting(dataset, wish)
            if isinstance(found, LakeError):
                yield Step(key, Verb.BLOCKED, f"{found.reason}: {str(found).partition(chr(10))[0]}")
            elif found is not None and wish.schedule is None:
                yield Step(key, Verb.CHANGE, f"{found[0]} {found[1]}")
            elif found is not None:
                yield Step(key, Verb.KEEP, f"{found[0]} {found[1]}, in a window of its schedule")

    def _worth_rewriting(
        self, dataset: Dataset, thresholds: Thresholds, where: str | None = None
    ) -> tuple[str, str] | LakeError | None:
        """Return which files a compaction would rewrite, and why; None if there are none, or no table yet."""
        store = self._open(self._home(dataset))
        if not isinstance(store, Store):
            return None
        try:
            files, ordered = _to_rewrite(store, dataset, thresholds, where)
        except (DatasetNotFound, DatasetDeleted):
            return None
        except LakeError as error:
            return error
        if not files:
            return None
        if ordered:
            return count(files, "file"), "can be put in order"
        return count(files, "small file"), "can be fewer"

    def _policy_step(self, key: Key, policy: GCPolicy) -> Step:
        """Return the step of a policy. It collects now if a slot has passed since the last run; see ``local.apply``."""
        problem = fault(policy.spec.schedule)
        if problem is not None:
            return Step(key, Verb.BLOCKED, f"InvalidSchedule: {problem}")
        if policy.spec.suspend:
            return Step(key, Verb.SUSPENDED, "nothing is collected; what it keeps stays")
        selects = matcher(policy.spec.selector)
        datasets = [d for d in self._applied.resources.values() if isinstance(d, Dataset)]
        number = sum(selects(dataset) for dataset in datasets if dataset.namespace == policy.namespace)
        if policy.requested_at in (None, policy.status.handled_request):
            return Step(key, Verb.KEEP, f"collects {count(number, 'dataset')} at its next slot")
        if policy.spec.mode == "DryRun":
            return Step(key, Verb.KEEP, f"says what it would delete of {count(number, 'dataset')}")
        return Step(key, Verb.CHANGE, f"deletes what no kept version of {count(number, 'dataset')} needs")


def _to_rewrite(store: Store, dataset: Dataset, thresholds: Thresholds, where: str | None) -> tuple[int, bool]:
    """Return how many files a compaction would rewrite, and whether it sorts rows. Raises LakeError."""
    log = DatasetLog(store, dataset.uuid)
    order = clustering_of(thresholds) or clustering_of(dataset.spec.maintenance.compaction)
    wish = Wish(
        where=None if where is None else parse(where),
        target_bytes=None if thresholds.target_file_size is None else parse_quantity(thresholds.target_file_size),
        min_files=thresholds.min_files,
        min_small_share=thresholds.min_small_percent / 100,
        clustering=clustering(order),
    )
    return plan_compaction(store, log, log.snapshot(), wish).rewritten.files, order is not None
