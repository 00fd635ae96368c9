"""What is wrong with resources among others: each rule with a manifest that breaks it and one that does not."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import BaseModel

from kubothek.api.bounds import Bound, bounds_of
from kubothek.api.dataset import Dataset
from kubothek.api.jobs import DatasetState, StoreState, Totals
from kubothek.api.kinds import KINDS, parse
from kubothek.api.meta import Resource
from kubothek.api.values import Reference
from kubothek.controller.finding import Finding
from kubothek.controller.validation.references import KIND_OF
from kubothek.controller.validation.resource_set import Gathered
from kubothek.controller.validation.rules import findings, new_findings
from tests.controller.fake import NAMESPACE, Fake

Json = dict[str, Any]

LAKE = {"storeRef": {"name": "lake"}}


def resource(kind: str, name: str, spec: Json, **more: Any) -> Resource:
    metadata = {"name": name, "namespace": NAMESPACE}
    return parse({"apiVersion": "kubothek.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec} | more)


def derived(name: str, *inputs: str, store: str = "lake") -> Resource:
    named = [{"datasetRef": each, "alias": f"i{number}"} for number, each in enumerate(inputs)]
    transform = {"kind": "Sql", "engine": "datafusion", "queries": [{"query": "SELECT 1"}]}
    event = {"kind": "SetTransform", "inputs": named, "transform": transform}
    ledger = {"kind": "Derivative", "metadata": [event]}
    return resource("Dataset", name, {"storeRef": {"name": store}, "ledger": ledger})


def append(name: str, of: str, **spec: Any) -> Resource:
    source = {"paths": ["a.csv"], "format": "CSV"}
    return resource("Commit", name, {"datasetRef": {"name": of}, "operation": "Append", "source": source} | spec)


def engine(template: Json) -> Resource:
    return resource("Engine", "big", {"podTemplate": {"driver": {"spec": template}}})


STORES = [resource("ObjectStore", name, {"url": f"s3://{name}"}) for name in ("lake", "pond")]
SAME_PLACE = resource("ObjectStore", "lagoon", {"url": "s3://lake/", "endpoint": None})
ORDERS = resource("Dataset", "orders", LAKE)
EVENTS = resource("Dataset", "events", LAKE | {"ledger": {"metadata": []}})
COPY = resource("Dataset", "copy", LAKE | {"ledger": {"kind": "Copy"}})
THEIRS = resource("Repository", "theirs", {"url": "https://example.org/data/"})
DENIED_VARIABLES = (
    "HOME",
    "JAVA_HOME",
    "BASH_ENV",
    "ENV",
    "AWS_CONFIG_FILE",
    "LD_BIND_NOW",
    "KUBOTHEK_IMAGE",
    "POD_NAME",
)
CUBE = resource(
    "Cube",
    "nyc",
    LAKE | {"dimensionColumns": ["a"], "partitionColumns": ["p"], "datasets": [{"name": "seed"}]},
)


def sync(direction: str, of: str) -> Resource:
    spec = {"repositoryRef": {"name": "theirs"}, "datasetRef": {"name": of}, "direction": direction}
    return resource("Sync", "s", spec)


def daily(**schedule: str) -> Json:
    return {"selector": {"all": True}, "schedule": {"cron": "@daily"} | schedule}


CASES: dict[str, tuple[Resource, list[Resource], list[tuple[str, str, bool]]]] = {
    "a name of nothing": (
        resource("Dataset", "d", {"storeRef": {"name": "sea"}, "engineRef": {"name": "big"}}),
        [],
        [("ObjectStoreNotFound", "spec.storeRef", False), ("EngineNotFound", "spec.engineRef", False)],
    ),
    "names in a list": (
        append("c", "orders", dependsOn=[{"name": "b"}]),
        [ORDERS],
        [("CommitNotFound", "spec.dependsOn[0]", False)],
    ),
    "a policy for a Dataset that is not there": (
        resource("GCPolicy", "p", daily() | {"selector": {"names": ["orders", "gone"]}}),
        [ORDERS],
        [("DatasetNotFound", "spec.selector.names[1]", False)],
    ),
    "a time zone that is none": (
        resource("GCPolicy", "p", daily(timeZone="Mars/Olympus")),
        [],
        [("InvalidSchedule", "spec.schedule", True)],
    ),
    "a day that never comes": (
        resource("Dataset", "d", LAKE | {"maintenance": {"compaction": {"schedule": {"cron": "0 0 30 2 *"}}}}),
        [],
        [("InvalidSchedule", "spec.maintenance.compaction.schedule", True)],
    ),
    "derived from itself": (derived("a", "a"), [], [("Cycle", "spec.ledger.metadata", True)]),
    "derived from what is derived from it": (
        derived("a", "c"),
        [derived("b", "a"), derived("c", "b")],
        [("Cycle", "spec.ledger.metadata", True)],
    ),
    "in no circle, beside one": (derived("d", "b"), [derived("b", "c"), derived("c", "b")], []),
    "derived from a table": (
        derived("a", "orders"),
        [ORDERS],
        [("TransformInvalid", "spec.ledger.metadata", True)],
    ),
    "derived from elsewhere": (
        derived("a", "events", store="pond"),
        [EVENTS],
        [("TransformInvalid", "spec.ledger.metadata", True)],
    ),
    "Commits in a circle": (
        append("a", "orders", dependsOn=[{"name": "b"}]),
        [ORDERS, append("b", "orders", dependsOn=[{"name": "a"}])],
        [("DependencyCycle", "spec.dependsOn", True)],
    ),
    "a Commit of a statement on a ledger": (
        append("a", "events", source={"sql": "SELECT 1 AS a"}),
        [EVENTS],
        [("LedgerOnly", "spec.datasetRef", True)],
    ),
    "a statement over a missing store": (
        append("a", "orders", source={"sql": "SELECT 1 AS a", "storeRef": {"name": "sea"}}),
        [ORDERS],
        [("ObjectStoreNotFound", "spec.source.storeRef", False)],
    ),
    "a Commit on a copy": (append("a", "copy"), [COPY], [("LedgerOnly", "spec.datasetRef", True)]),
    "a Sync of a table": (sync("Pull", "orders"), [ORDERS, THEIRS], [("NotALedger", "spec.datasetRef", True)]),
    "a Sync over a chain": (sync("Pull", "events"), [EVENTS, THEIRS], [("NotACopy", "spec.datasetRef", True)]),
    "a push to where none may": (sync("Push", "copy"), [COPY, THEIRS], [("PushNotAllowed", "spec.datasetRef", True)]),
    "a pull that may be": (sync("Pull", "copy"), [COPY, THEIRS], []),
    "one uuid twice": (
        resource("Dataset", "again", LAKE | {"uuid": "orders"}),
        [ORDERS],
        [("OwnedByAnother", "spec.uuid", True)],
    ),
    "one uuid twice in two stores of one place": (
        resource("Dataset", "again", {"storeRef": {"name": "lagoon"}, "uuid": "orders"}),
        [ORDERS, SAME_PLACE],
        [("OwnedByAnother", "spec.uuid", True)],
    ),
    "one uuid in two places": (
        resource("Dataset", "again", {"storeRef": {"name": "pond"}, "uuid": "orders"}),
        [ORDERS],
        [],
    ),
    "a name of a cube's": (
        resource("Dataset", "nyc-seed", LAKE),
        [CUBE],
        [("NameCollision", "metadata.name", True)],
    ),
    "a cube whose name is taken": (
        CUBE,
        [resource("Dataset", "nyc-seed", LAKE)],
        [("NameCollision", "spec.datasets[0].name", True)],
    ),
    "a variable that loads code": (
        engine({"containers": [{"name": "driver", "env": [{"name": "A"}, {"name": "PYTHONPATH", "value": "/x"}]}]}),
        [],
        [("PodTemplateDenied", "spec.podTemplate.driver.spec.containers[0].env[1]", True)],
    ),
    "variables of which only their object knows the names": (
        engine(
            {
                "containers": [
                    {
                        "name": "driver",
                        "envFrom": [
                            {"secretRef": {"name": "s"}},
                            {"prefix": "PYTHON", "configMapRef": {"name": "c"}},
                            {"prefix": "APP_", "configMapRef": {"name": "c"}},
                        ],
                    },
                    {"name": "proxy", "envFrom": [{"secretRef": {"name": "s"}}]},
                ]
            }
        ),
        [],
        [
            ("PodTemplateDenied", "spec.podTemplate.driver.spec.containers[0].envFrom[0]", True),
            ("PodTemplateDenied", "spec.podTemplate.driver.spec.containers[0].envFrom[1]", True),
        ],
    ),
    "variables of the shell, Java, and the SDK of a store": (
        engine(
            {"containers": [{"name": "driver", "env": [{"name": name} for name in ("PATH", "TZ", *DENIED_VARIABLES)]}]}
        ),
        [],
        [
            ("PodTemplateDenied", f"spec.podTemplate.driver.spec.containers[0].env[{index}]", True)
            for index in (0, *range(2, 2 + len(DENIED_VARIABLES)))
        ],
    ),
    "a prefix beyond that of a denied variable": (
        engine(
            {"containers": [{"name": "driver", "envFrom": [{"prefix": "AWS_SHARED_", "secretRef": {"name": "s"}}]}]}
        ),
        [],
        [("PodTemplateDenied", "spec.podTemplate.driver.spec.containers[0].envFrom[0]", True)],
    ),
    "a variable of another container": (
        engine({"containers": [{"name": "proxy", "env": [{"name": "PYTHONPATH"}]}], "nodeSelector": {"a": "b"}}),
        [],
        [],
    ),
    "a way out of the pod": (
        engine({"volumes": [{"name": "x", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/"}}]}),
        [],
        [("PodTemplateDenied", "spec.podTemplate.driver.spec.volumes[1]", True)],
    ),
    "privileges beside ours": (
        engine(
            {
                "initContainers": [{"name": "i", "securityContext": {"privileged": True}}],
                "containers": [
                    {"name": "p", "securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE", "SYS_ADMIN"]}}},
                    {"name": "q", "ports": [{"hostPort": 80}]},
                ],
            }
        ),
        [],
        [
            ("PodTemplateDenied", "spec.podTemplate.driver.spec.initContainers[0].securityContext.privileged", True),
            ("PodTemplateDenied", "spec.podTemplate.driver.spec.containers[0].securityContext.capabilities.add", True),
            ("PodTemplateDenied", "spec.podTemplate.driver.spec.containers[1].ports", True),
        ],
    ),
    "what no pod takes": (
        engine({"serviceAccountName": "root", "containers": [{"name": "driver", "image": "mine"}]}),
        [],
        [
            ("NoEffect", "spec.podTemplate.driver.spec.serviceAccountName", False),
            ("NoEffect", "spec.podTemplate.driver.spec.containers[0].image", False),
        ],
    ),
    "a template of no shape": (engine({"containers": "x", "volumes": [3], "hostAliases": None}), [], []),
    "a tag ahead of the table": (
        resource("Dataset", "d", LAKE | {"tags": [{"name": "t", "version": 4}]}, status={"version": 3}),
        [],
        [("VersionNotFound", "spec.tags[0].version", False)],
    ),
    "other partitions than those of the table": (
        resource("Dataset", "d", LAKE | {"table": {"partitionOn": ["day"]}}, status={"partitionOn": ["month"]}),
        [],
        [("LayoutMismatch", "spec.table.partitionOn", True)],
    ),
    "partitions of what was adopted": (
        resource("Dataset", "d", LAKE | {"adopt": True}, status={"partitionOn": ["month"]}),
        [],
        [],
    ),
}


def told(found: list[Finding]) -> list[tuple[str, str, bool]]:
    return [(each.reason, each.path, each.denies) for each in found]


@pytest.mark.parametrize("case", CASES)
def test_admission_rule_violation_is_reported_with_field_path(case: str) -> None:
    subject, others, expected = CASES[case]
    there = Gathered([*STORES, *others])
    found = list(findings(subject, there))
    assert told(found) == expected
    assert all(each.message for each in found)
    assert told(list(findings(subject, Gathered([*STORES, *others, subject])))) == expected, "itself among them"


def test_admission_knows_kind_of_every_reference_field() -> None:
    """A new field of type Reference needs an entry in KIND_OF, or KeyError meets whoever uses it."""
    unknown: set[str] = set()
    seen: set[type[BaseModel]] = set()

    def look(model: type[BaseModel]) -> None:
        if model in seen:
            return
        seen.add(model)
        for name, info in model.model_fields.items():
            for inner in _models(info.annotation):
                if inner is Reference:
                    unknown.update({info.alias or name} - set(KIND_OF))
                look(inner)

    for kind in KINDS.values():
        look(kind.model_fields["spec"].annotation)  # type: ignore[arg-type]
    assert not unknown
    assert Reference in seen


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]


def test_edit_with_preexisting_violation_is_admitted() -> None:
    bad = {"containers": [{"name": "driver", "env": [{"name": "PYTHONPATH"}]}]}
    worse = {"containers": [{"name": "driver", "env": [{"name": "PYTHONPATH"}, {"name": "LD_PRELOAD"}]}]}
    there = Gathered([])
    assert [each.denies for each in new_findings(engine(bad), None, there)] == [True]
    assert [each.denies for each in new_findings(engine(bad), engine(bad), there)] == [False]
    assert [each.denies for each in new_findings(engine(worse), engine(bad), there)] == [False, True]


# --- quotas -----------------------------------------------------------------------------------------------------------


def bounding(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "team", "namespace": NAMESPACE}, "spec": spec}


def quota(**hard: str) -> dict[str, Any]:
    return bounding("ResourceQuota", hard={name.replace("_", "."): value for name, value in hard.items()})


def limits(kind: str, **limit: Any) -> dict[str, Any]:
    return bounding("LimitRange", limits=[{"type": kind, **limit}])


# With what they need beside their heaps these are 1.9 GiB and half a core, and four times 2.8 GiB and two cores.
SIZES = {"driver": {"cores": 1, "memory": "1Gi"}, "executor": {"instances": 4, "cores": 2, "memory": "2Gi"}}
ALL = ("QuotaExceeded", "spec", True)
BOUNDS: dict[str, tuple[list[dict[str, Any]], dict[str, Any], list[tuple[str, str, bool]]]] = {
    "enough": ([quota(pods="5", cpu="8500m", limits_memory="14Gi"), limits("Pod", max={"cpu": "2"})], SIZES, []),
    "pods": ([quota(pods="4")], SIZES, [ALL]),
    "cores": ([quota(requests_cpu="8.4")], SIZES, [ALL]),
    "memory, by either name": ([quota(memory="13Gi"), quota(limits_memory="13e9")], SIZES, [ALL, ALL]),
    "an elastic number is counted at its least": (
        [quota(pods="3")],
        {**SIZES, "dynamicAllocation": {"min": 2, "max": 100}},
        [],
    ),
    "an elastic number that is too many": (
        [quota(pods="3")],
        {**SIZES, "dynamicAllocation": {"min": 3, "max": 100}},
        [ALL],
    ),
    "a limit that nobody has": ([quota(limits_cpu="100")], SIZES, [ALL]),
    "a limit that a range fills in": ([quota(limits_cpu="10"), limits("Container", default={"cpu": "2"})], SIZES, []),
    "a limit that is filled in too often": (
        [quota(limits_cpu="9"), limits("Container", default={"cpu": "2"})],
        SIZES,
        [ALL],
    ),
    "one container, one pod": (
        [limits("Container", max={"memory": "2Gi"}), limits("Pod", max={"cpu": "1"})],
        SIZES,
        [
            ("AdmissionDenied", "spec.executor.memory", True),
            ("AdmissionDenied", "spec.executor.cores", True),
        ],
    ),
    "what is of some pods only, of no shape, or of other things": (
        [
            bounding("ResourceQuota", hard={"pods": "1"}, scopes=["BestEffort"]),
            bounding("ResourceQuota", hard={"pods": "many", "count/secrets": "1"}),
            limits("PersistentVolumeClaim", max={"storage": "1"}),
            bounding("LimitRange"),
        ],
        SIZES,
        [],
    ),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_engine_whose_jobs_exceed_namespace_bounds_is_refused(case: str) -> None:
    manifests, spec, expected = BOUNDS[case]
    found = list(findings(resource("Engine", "e", spec), Gathered([], {NAMESPACE: bounds(*manifests)})))
    assert told(found) == expected
    assert all("'team'" in each.message for each in found)
    assert not list(findings(resource("Engine", "e", spec), Gathered([], {"other": bounds(*manifests)})))


def bounds(*manifests: dict[str, Any]) -> list[Bound]:
    return [bound for each in manifests for bound in bounds_of(each["kind"], each)]


def test_engine_without_executors_inherits_size_from_default_engine() -> None:
    there = Gathered([resource("Engine", "default", SIZES)], {NAMESPACE: bounds(quota(pods="4"))})
    (found,) = findings(resource("Engine", "e", {"driver": {"cores": 2}}), there)
    assert found.message == (
        "ResourceQuota 'team' has 4 of pods in all, and a job of this Engine asks for 5 (a driver and 4 executors): it "
        "could never start; make it smaller, or have the quota raised"
    )


# --- the same rules in the reconcilers -------------------------------------------------------------------------------


def test_engine_with_denied_pod_template_starts_no_jobs() -> None:
    context = Fake()
    volumes = [{"name": "host", "hostPath": {"path": "/"}}]
    context.create("ObjectStore", "lake", {"url": "s3://lake"})
    context.create("Engine", "default", {"podTemplate": {"executor": {"spec": {"volumes": volumes}}}})
    context.reconcile("Engine", "default")
    context.reconcile("ObjectStore", "lake")
    for kind, name in (("Engine", "default"), ("ObjectStore", "lake")):
        assert context.condition(kind, name) == ("False", "PodTemplateDenied")
        assert "spec.podTemplate.executor.spec.volumes[0]" in context.message(kind, name)
    assert not context.launches


def test_engine_beyond_namespace_quota_is_reported_and_starts_jobs() -> None:
    context = Fake()
    context.create("ObjectStore", "lake", {"url": "s3://lake"})
    context.create("Engine", "default", SIZES)
    context.bounding.append(quota(requests_memory="4Gi"))
    for kind, name in (("Engine", "default"), ("ObjectStore", "lake")):
        context.reconcile(kind, name)
    assert context.condition("Engine", "default") == ("False", "QuotaExceeded")
    assert "4Gi of requests.memory" in context.message("Engine", "default")
    assert context.launches, "an inspection is small"
    context.bounding.clear()
    context.reconcile("Engine", "default")
    assert context.condition("Engine", "default") == ("True", "Succeeded")


def test_dataset_over_differently_partitioned_table_is_reported() -> None:
    context = Fake()
    context.create("ObjectStore", "lake", {"url": "s3://lake"})
    context.create("Dataset", "orders", LAKE | {"table": {"partitionOn": ["day"]}})
    context.reconcile("ObjectStore", "lake")
    totals = Totals(rows=3, files=1, bytes=10, partitions=1)
    seen = DatasetState(uuid="orders", version=7, totals=totals, partition_on=("month",))
    context.job_ends("lake-inspect-1", store=StoreState(conditional_writes=True), datasets=(seen,))
    context.reconcile("ObjectStore", "lake")
    context.reconcile("Dataset", "orders")
    assert context.condition("Dataset", "orders") == ("False", "LayoutMismatch")
    assert "partitioned on month" in context.message("Dataset", "orders")
    dataset = context.get(Dataset, NAMESPACE, "orders")
    assert dataset is not None
    assert dataset.writable, "an Overwrite with allowSchemaChange mends it"
