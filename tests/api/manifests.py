"""One table of manifests for both validators: the API server's CEL and our Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

LONG = "n" * 41


@dataclass(frozen=True)
class Case:
    """A manifest and what becomes of it: ``refusal`` is part of the error, None if it is accepted.

    Schema errors have different words in the two validators; then ``refusal`` is the path, which both name.
    """

    name: str
    kind: str
    spec: Json
    refusal: str | None = None
    resource: str = "a-name"
    cluster_only: bool = False

    def manifest(self, resource: str | None = None) -> Json:
        metadata = {"name": resource or self.resource}
        return {"apiVersion": "kubothek.io/v1alpha1", "kind": self.kind, "metadata": metadata, "spec": self.spec}


@dataclass(frozen=True)
class Edit:
    """A change of a spec, both sides valid by themselves."""

    name: str
    kind: str
    old: Json
    new: Json
    refusal: str | None = None

    def manifest(self, spec: Json, resource: str = "a-name") -> Json:
        return Case(self.name, self.kind, spec).manifest(resource)


def store(**spec: Any) -> Json:
    return {"url": "s3://lake/warehouse"} | spec


def dataset(**spec: Any) -> Json:
    return {"storeRef": {"name": "lake"}} | spec


def table(**spec: Any) -> Json:
    return dataset(table=spec)


def sources(**source: Any) -> Json:
    """A Dataset with one standing source, but for the fields that are None."""
    given = {"name": "landing", "prefix": "landing/", "format": "CSV"} | source
    return dataset(sources=[{name: value for name, value in given.items() if value is not None}])


def query(location: Json | None = None, **spec: Any) -> Json:
    result = {"location": {"path": "reports"} | (location or {})}
    return {"sql": "SELECT 1", "storeRef": {"name": "lake"}, "result": result} | spec


def policy(schedule: Json | None = None, **spec: Any) -> Json:
    """A GCPolicy for all Datasets, each night."""
    return {"selector": {"all": True}, "schedule": {"cron": "30 2 * * *"} | (schedule or {})} | spec


def skipping(*indices: Json, **spec: Any) -> Json:
    """A Dataset with skipping metadata."""
    return table(skipping={"indices": list(indices)} | spec)


def plain(location: Json | None = None, **spec: Any) -> Json:
    """A SkippingIndex."""
    place = {"storeRef": {"name": "lake"}, "prefix": "landing/trips"} | (location or {})
    return {"location": place, "skipping": {"indices": [MINMAX]}} | spec


MINMAX = {"type": "MinMax", "column": "b"}


def ledger(*events: Json, **spec: Any) -> Json:
    """A Dataset with a ledger."""
    return dataset(ledger={"metadata": list(events)} | spec)


COPY = {"storeRef": {"name": "lake"}, "ledger": {"kind": "Copy"}}
"""A Dataset that a Sync pulls."""


def repository(url: str = "https://example.org/data", **spec: Any) -> Json:
    return {"url": url} | spec


def sync(direction: str = "Pull", **spec: Any) -> Json:
    return {
        "repositoryRef": {"name": "theirs"},
        "datasetRef": {"name": "flights"},
        "direction": direction,
    } | spec


DERIVED: Json = {
    "kind": "SetTransform",
    "inputs": [{"datasetRef": "flights"}, {"datasetRef": "did:odf:fed016c", "alias": "weather"}],
    "transform": {"kind": "Sql", "engine": "duckdb", "query": "SELECT * FROM flights JOIN weather USING (hour)"},
}


def derivative(*events: Json, only: bool = False, **spec: Any) -> Json:
    """A Dataset with a ledger that is derived from others; ``only``: by these events alone."""
    return ledger(*(() if only else (DERIVED,)), *events, kind="Derivative", **spec)


def maintenance(**spec: Any) -> Json:
    return dataset(maintenance=spec)


def commit(source: Json | None = None, **spec: Any) -> Json:
    return {"datasetRef": {"name": "flights"}, "operation": "Append", "source": source or files()} | spec


def change(operation: str, **spec: Any) -> Json:
    """A Commit without a source."""
    return {"datasetRef": {"name": "flights"}, "operation": operation} | spec


def files(**source: Any) -> Json:
    return {"paths": ["in/flights.csv"], "format": "CSV"} | source


def cube(*datasets: Json, **spec: Any) -> Json:
    """A Cube with a seed, and other datasets."""
    given = {"storeRef": {"name": "lake"}, "dimensionColumns": ["x", "y"], "partitionColumns": ["p"]}
    return given | {"datasets": [{"name": "seed"}, *datasets]} | spec


def cube_change(operation: str, **spec: Any) -> Json:
    """A Commit of a Cube, but for the fields that are None."""
    change = {"cubeRef": {"name": "geo"}, "operation": operation} | spec
    return {"cube": {name: value for name, value in change.items() if value is not None}}


def selected(**source: Any) -> Json:
    """A source of rows from a statement."""
    return {"sql": "SELECT * FROM flights"} | source


def rows(name: str = "seed", **source: Any) -> Json:
    return {"name": name, "source": files(**source)}


def question(**spec: Any) -> Json:
    """A Query of a cube."""
    result = {"location": {"path": "reports"}}
    return {"cube": {"uuidPrefix": "geo"} | spec, "storeRef": {"name": "lake"}, "result": result}


def standing(**spec: Any) -> Json:
    """A Query that keeps a Dataset current."""
    return query(**{"result": TOP} | spec)


def column(name: str, type_: str = "int64") -> Json:
    return {"name": name, "type": type_}


READ = {"kind": "Csv", "schema": ["id BIGINT"]}
POLLED = {
    "kind": "SetPollingSource",
    "fetch": {"kind": "Url", "url": "https://example.org/planes.csv"},
    "read": READ,
    "merge": {"kind": "Snapshot", "primaryKey": ["id"]},
}
PUSHED = {"kind": "AddPushSource", "sourceName": "default", "read": READ, "merge": {"kind": "Append"}}
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
SCHEDULE = {"cron": "@hourly", "jitter": "5m"}
FLIGHTS = [{"name": "flights"}]
TOP = {"datasetRef": {"name": "top"}}
MERGED = TOP | {"operation": "Merge", "key": ["carrier"]}
COMPACTION = {"datasetRef": {"name": "flights"}}
VERIFICATION = {"datasetRef": {"name": "flights"}}
ADOPTED = {"storeRef": {"name": "lake"}, "adopt": True}
DELETION = change("Delete", where="month = 3")
UPDATE = change("Update", where="month = 3", set={"a": "1", "b": "NULL"}, rowLevel=True)
UPDATED = {"action": "Update"}
MERGE = commit(operation="Merge", key=["id"], whenMatched=[UPDATED], whenNotMatched=[{"action": "Insert"}])
FILE_STORE = {"url": "file:///data", "volume": {"claimName": "data"}}

CASES = [
    # names
    Case("a short name", "Engine", {}),
    Case("the longest name", "Engine", {}, resource="n" * 40),
    Case("a name that is too long for pods", "Engine", {}, "longer than 40 characters", resource=LONG),
    Case("a name with a dot", "Engine", {}, "the name has a dot", resource="a.b"),
    # ObjectStore
    Case("a bucket", "ObjectStore", {"url": "s3://lake"}),
    Case(
        "a bucket with all that belongs to it",
        "ObjectStore",
        store(endpoint="http://minio:9000", region="eu-1", credentialsSecretRef={"name": "s"}),
    ),
    Case("a volume", "ObjectStore", FILE_STORE),
    Case("no url", "ObjectStore", {}, "spec.url"),
    Case("a url of another service", "ObjectStore", {"url": "gs://lake"}, "spec.url"),
    Case("a bucket name that S3 refuses", "ObjectStore", {"url": "s3://Lake"}, "spec.url"),
    Case(
        "a file store without a volume",
        "ObjectStore",
        {"url": "file:///data"},
        "spec.volume.claimName",
        cluster_only=True,
    ),
    Case(
        "a relative file store",
        "ObjectStore",
        {"url": "file:data"},
        "in a cluster a file store needs",
        cluster_only=True,
    ),
    Case(
        "a volume for a bucket",
        "ObjectStore",
        store(volume={"claimName": "data"}),
        "spec.volume is for file:// stores only",
    ),
    Case(
        "credentials for a volume",
        "ObjectStore",
        FILE_STORE | {"credentialsSecretRef": {"name": "s"}},
        "are for s3:// stores only",
    ),
    Case(
        "an endpoint for a volume",
        "ObjectStore",
        FILE_STORE | {"endpoint": "http://minio"},
        "are for s3:// stores only",
    ),
    Case("an endpoint that is no url", "ObjectStore", store(endpoint="minio:9000"), "spec.endpoint"),
    Case("an interval in hours and minutes", "ObjectStore", store(interval="1h30m")),
    Case(
        "an interval that starts pods all the time",
        "ObjectStore",
        store(interval="9s"),
        "spec.interval is shorter than 10s",
    ),
    Case("an interval without a unit", "ObjectStore", store(interval="600"), "spec.interval"),
    Case("an unknown field", "ObjectStore", store(bucket="lake"), "bucket"),
    Case("a text for a truth value", "ObjectStore", store(suspend="true"), "spec.suspend"),
    # Engine
    Case(
        "an engine with everything",
        "Engine",
        {
            "image": "registry.example/kubothek:1",
            "imagePullPolicy": "Always",
            "imagePullSecrets": [{"name": "r"}],
            "serviceAccountName": "jobs",
            "driver": {"cores": 2, "memory": "4Gi"},
            "executor": {"instances": 8, "cores": 4, "memory": "16Gi"},
            "sparkConf": {"spark.sql.shuffle.partitions": "8"},
            "sparkFrom": 1048576,
            "podTemplate": {"driver": {"spec": {"nodeSelector": {"disk": "ssd"}}}},
            "retry": {"limit": 0, "backoff": {"initial": "1s", "max": "1s"}},
            "deadlines": {"start": "1m", "total": "24h"},
        },
    ),
    Case("a pull policy that is none", "Engine", {"imagePullPolicy": "Sometimes"}, "spec.imagePullPolicy"),
    Case(
        "a pull secret twice",
        "Engine",
        {"imagePullSecrets": [{"name": "r"}, {"name": "r"}]},
        "spec.imagePullSecrets[1]",
    ),
    Case("memory in Spark's notation", "Engine", {"driver": {"memory": "4g"}}, "spec.driver.memory"),
    Case("drivers that wait", "Engine", {"warm": {"min": 1, "max": 1, "idleTimeout": "5m", "sparkUpTo": "256Mi"}}),
    Case("drivers that wait by default", "Engine", {"warm": {}}),
    Case("more that wait at least than at most", "Engine", {"warm": {"min": 5}}, "warm.min is more than warm.max"),
    Case("memory that Spark cannot start with", "Engine", {"executor": {"memory": "100Mi"}}, "must be at least 512Mi"),
    Case("memory as a number", "Engine", {"executor": {"memory": 1073741824}}),
    Case("too few bytes as a number", "Engine", {"driver": {"memory": 1024}}, "must be at least 512Mi"),
    Case("no cores", "Engine", {"driver": {"cores": 0}}, "spec.driver.cores"),
    Case("too many executors", "Engine", {"executor": {"instances": 1001}}, "spec.executor.instances"),
    Case(
        "a key that is not Spark's", "Engine", {"sparkConf": {"fs.s3a.access.key": "x"}}, "does not begin with 'spark.'"
    ),
    Case("another master", "Engine", {"sparkConf": {"spark.master": "local"}}, "only the operator may"),
    Case(
        "another image by conf",
        "Engine",
        {"sparkConf": {"spark.kubernetes.container.image": "x"}},
        "only the operator may",
    ),
    *(
        Case(f"{key} in conf", "Engine", {"sparkConf": {key: "x"}}, "only the operator may")
        for key in (
            "spark.authenticate.secret.file",
            "spark.driver.resource.gpu.discoveryScript",
            "spark.executor.resource.gpu.discoveryScript",
            "spark.network.crypto.enabled",
            "spark.remote",
        )
    ),
    Case("a jar", "Engine", {"sparkConf": {"spark.jars": "http://evil/x.jar"}}, "only the operator may"),
    Case(
        "a Java agent",
        "Engine",
        {"sparkConf": {"spark.driver.extraJavaOptions": "-javaagent:x"}},
        "only the operator may",
    ),
    Case(
        "credentials in conf", "Engine", {"sparkConf": {"spark.hadoop.fs.s3a.secret.key": "x"}}, "only the operator may"
    ),
    Case("a conf value that is no text", "Engine", {"sparkConf": {"spark.a": 1}}, "spec.sparkConf"),
    Case(
        "a backoff that shrinks",
        "Engine",
        {"retry": {"backoff": {"initial": "1h", "max": "5m"}}},
        "is longer than retry.backoff.max",
    ),
    Case("a backoff whose beginning another layer says", "Engine", {"retry": {"backoff": {"max": "1s"}}}),
    Case("too many retries", "Engine", {"retry": {"limit": 21}}, "spec.retry.limit"),
    Case("too little memory of a driver", "Engine", {"driver": {"memory": "256Mi"}}, "driver.memory must be at least"),
    Case(
        "all of a profile",
        "Engine",
        {
            "executor": {"spot": "Require"},
            "dynamicAllocation": {"initial": 1, "min": 1, "max": 9, "shuffleTracking": False, "idleTimeout": "2m"},
            "scratch": {"medium": "EphemeralPVC", "size": "20Gi", "storageClassName": "fast"},
            "schedulerName": "yunikorn",
            "queueName": "root.batch",
            "priorityClassName": "batch",
            "deadlines": {"schedule": "1h", "executors": "5m"},
            "podRetention": {"policy": "OnFailure", "duration": "24h"},
            "eventLog": {"enabled": True, "maxSize": "32Mi"},
        },
    ),
    *(
        Case(f"{part}: {said}", "Engine", {part: spec}, said)
        for part, spec, said in (
            ("dynamicAllocation", {"min": 3, "max": 2}, "min is more than dynamicAllocation.max"),
            ("dynamicAllocation", {"initial": 3, "max": 2}, "initial is more than dynamicAllocation.max"),
            ("dynamicAllocation", {"initial": 1, "min": 2}, "initial is less than dynamicAllocation.min"),
            ("dynamicAllocation", {"max": 0}, "spec.dynamicAllocation.max"),
            ("scratch", {"medium": "Memory"}, "scratch.size is missing"),
            ("scratch", {"storageClassName": "fast"}, "goes with medium: EphemeralPVC"),
            ("eventLog", {"maxSize": "1Mi"}, "eventLog.maxSize must be at least"),
            ("executor", {"spot": "Never"}, "spec.executor.spot"),
            ("schedulerName", "Volcano", "spec.schedulerName"),
            ("queueName", "a/b", "spec.queueName"),
            ("podRetention", {"policy": "Sometimes"}, "spec.podRetention.policy"),
        )
    ),
    *(
        Case(f"a size of a run: {part}", "Commit", commit(size={part: {"memory": "1Mi"}}), f"{part}.memory must be at")
        for part in ("driver", "executor")
    ),
    # Dataset
    Case("a dataset", "Dataset", dataset()),
    Case("a dataset that keeps the newest runs", "Dataset", dataset(runHistory={"complete": 20, "failed": 1})),
    Case("one that keeps no failed runs", "Dataset", dataset(runHistory={"failed": 0}), "spec.runHistory.failed"),
    Case(
        "a dataset with everything",
        "Dataset",
        {
            "uuid": "Flights_2013",
            "storeRef": {"name": "lake"},
            "engineRef": {"name": "big"},
            "deletionPolicy": "Delete",
            "restore": True,
            "suspend": True,
            "table": {
                "partitionOn": ["year", "month"],
                "targetFileSize": "256Mi",
                "compression": "SNAPPY",
                "schema": [
                    column("year"),
                    column("month"),
                    column("fare", "decimal128(10, 2)"),
                    column("at", "timestamp[us]") | {"nullable": False},
                ],
            },
        },
    ),
    Case("a dataset without a store", "Dataset", {}, "spec.storeRef"),
    Case("a reference without a name", "Dataset", {"storeRef": {}}, "spec.storeRef.name"),
    Case("a reference to a namespace", "Dataset", {"storeRef": {"name": "lake", "namespace": "other"}}, "namespace"),
    Case("a uuid with a slash", "Dataset", dataset(uuid="a/b"), "spec.uuid"),
    Case("a uuid of a cube", "Dataset", dataset(uuid="++geo"), "spec.uuid begins with '++'"),
    Case("a ledger in a cube", "Dataset", dataset(uuid="geo++planes", ledger={"metadata": []}), "a ledger is none"),
    Case("a uuid of a cube's member", "Dataset", dataset(uuid="geo++seed")),
    Case(
        "a cube's member with writers",
        "Dataset",
        dataset(uuid="geo++seed", writers=[{"name": "etl", "operations": ["Append"]}]),
        "spec.writers goes without '++'",
    ),
    Case("a writer in a cluster", "Dataset", dataset(writers=[{"serviceAccount": "etl", "operations": ["Append"]}])),
    Case(
        "a writer in another namespace",
        "Dataset",
        dataset(writers=[{"serviceAccount": "etl", "namespace": "spark", "operations": ["Merge", "Tag"]}]),
    ),
    Case("a writer with a name", "Dataset", dataset(writers=[{"name": "dbt@laptop", "operations": ["Delete"]}])),
    Case("a writer without identity", "Dataset", dataset(writers=[{"operations": ["Append"]}]), "has one identity"),
    Case(
        "a writer with two identities",
        "Dataset",
        dataset(writers=[{"name": "a", "serviceAccount": "b", "operations": ["Append"]}]),
        "has one identity",
    ),
    Case(
        "a namespace of a name",
        "Dataset",
        dataset(writers=[{"name": "a", "namespace": "b", "operations": ["Append"]}]),
        "namespace is that of a serviceAccount",
    ),
    Case(
        "a writer's name that poses as a service account",
        "Dataset",
        dataset(writers=[{"name": "system:serviceaccount:a:b", "operations": ["Append"]}]),
        "spec.writers[0].name",
    ),
    Case("a writer without operations", "Dataset", dataset(writers=[{"name": "a", "operations": []}]), "operations"),
    Case(
        "a writer with an operation of the owner",
        "Dataset",
        dataset(writers=[{"name": "a", "operations": ["Layout"]}]),
        "spec.writers[0].operations[0]",
    ),
    Case("an empty uuid", "Dataset", dataset(uuid=""), "spec.uuid"),
    Case("no partitions", "Dataset", table(partitionOn=[])),
    Case(
        "a partition column twice", "Dataset", table(partitionOn=["a", "a"]), "table.partitionOn names a column twice"
    ),
    Case("a partition column with a slash", "Dataset", table(partitionOn=["a/b"]), "spec.table.partitionOn[0]"),
    Case(
        "too many partition columns",
        "Dataset",
        table(partitionOn=[f"c{n}" for n in range(17)]),
        "spec.table.partitionOn",
    ),
    Case(
        "a partition column that the schema lacks",
        "Dataset",
        table(partitionOn=["a"], schema=[column("b")]),
        "that table.schema does not have",
    ),
    Case(
        "a schema of partition columns only",
        "Dataset",
        table(partitionOn=["a"], schema=[column("a")]),
        "no column besides those of table.partitionOn",
    ),
    Case("a column twice", "Dataset", table(schema=[column("a"), column("a", "string")]), "spec.table.schema[1]"),
    Case(
        "the widest schema",
        "Dataset",
        table(
            partitionOn=[f"column-{n}" for n in range(984, 1000)], schema=[column(f"column-{n}") for n in range(1000)]
        ),
    ),
    Case(
        "every field of the layout",
        "Dataset",
        table(
            partitionOn=["a"],
            sortBy=["b", "c"],
            bucketBy=["c"],
            numBuckets=16,
            rowGroupRows=100_000,
            dictionaryColumns=["b"],
            schemaEvolution="Compatible",
            schema=[column("a"), column("b"), column("c")],
        ),
    ),
    Case("no dictionaries at all", "Dataset", table(dictionaryColumns=[])),
    Case(
        "indices of both kinds",
        "Dataset",
        table(
            partitionOn=["a"],
            indices=[{"column": "b"}, {"column": "c", "kind": "Kartothek"}],
            dialect="Plateau",
            schema=[column("a"), column("b"), column("c", "string")],
        ),
    ),
    Case("no indices", "Dataset", table(indices=[])),
    Case("two indices on a column", "Dataset", table(indices=[{"column": "b"}] * 2), "spec.table.indices[1]"),
    Case("an index of no kind", "Dataset", table(indices=[{"column": "b", "kind": "B"}]), "spec.table.indices[0].kind"),
    Case("an unknown dialect", "Dataset", table(dialect="Hive"), "spec.table.dialect"),
    Case(
        "too many indices",
        "Dataset",
        table(indices=[{"column": f"c{n}"} for n in range(17)]),
        "spec.table.indices",
    ),
    Case(
        "an index on a partition column",
        "Dataset",
        table(partitionOn=["a"], indices=[{"column": "a"}]),
        "table.indices names a column of table.partitionOn",
    ),
    Case(
        "an index on a column that the schema lacks",
        "Dataset",
        table(indices=[{"column": "a"}], schema=[column("b")]),
        "table.indices names a column that table.schema does not have",
    ),
    Case(
        "a bucket column that the schema lacks",
        "Dataset",
        table(bucketBy=["a"], numBuckets=2, schema=[column("b")]),
        "table.bucketBy names a column that table.schema does not have",
    ),
    *(
        case
        for field, more in (("sortBy", {}), ("bucketBy", {"numBuckets": 2}), ("dictionaryColumns", {}))
        for case in (
            Case(
                f"{field} twice", "Dataset", table(**{field: ["a", "a"]}, **more), f"table.{field} names a column twice"
            ),
            Case(
                f"{field} of a partition column",
                "Dataset",
                table(**{field: ["a"]}, **more, partitionOn=["a"]),
                f"table.{field} names a column of table.partitionOn",
            ),
        )
    ),
    Case(
        "a sort column that the schema lacks",
        "Dataset",
        table(sortBy=["a"], schema=[column("b")]),
        "table.sortBy names a column that table.schema does not have",
    ),
    Case("buckets of nothing", "Dataset", table(numBuckets=2), "table.bucketBy and table.numBuckets go together"),
    Case("buckets without a number", "Dataset", table(bucketBy=["a"]), "table.bucketBy and table.numBuckets"),
    Case("an empty list of bucket columns", "Dataset", table(bucketBy=[])),
    Case("no buckets", "Dataset", table(bucketBy=["a"], numBuckets=0), "spec.table.numBuckets"),
    Case("row groups of no rows", "Dataset", table(rowGroupRows=0), "spec.table.rowGroupRows"),
    Case("an unknown evolution", "Dataset", table(schemaEvolution="Any"), "spec.table.schemaEvolution"),
    Case("a type that is none", "Dataset", table(schema=[column("a", "integer")]), "spec.table.schema[0].type"),
    Case("an empty schema", "Dataset", table(schema=[]), "spec.table.schema"),
    Case("tiny files", "Dataset", table(targetFileSize="1Ki"), "table.targetFileSize must be between"),
    Case("huge files", "Dataset", table(targetFileSize="5Gi"), "table.targetFileSize must be between"),
    Case("a compression that is none", "Dataset", table(compression="LZMA"), "spec.table.compression"),
    Case("a policy that is none", "Dataset", dataset(deletionPolicy="Orphan"), "spec.deletionPolicy"),
    Case("a ledger of nothing", "Dataset", ledger()),
    Case(
        "a ledger with all that belongs to it",
        "Dataset",
        ledger(
            POLLED,
            {"kind": "setInfo", "description": "Planes"},
            {"kind": "setvocab", "eventTimeColumn": "t"},
            {"kind": "SetLicense", "shortName": "CC0", "name": "CC0 1.0", "websiteUrl": "https://example.org"},
            {"kind": "SetAttachments", "attachments": {"kind": "Embedded", "items": [{"path": "a", "content": "b"}]}},
            schedule=SCHEDULE,
            types="Spec",
            view="None",
            identitySecretRef={"name": "key"},
            envSecretRef={"name": "tokens"},
        ),
    ),
    Case("a ledger with push sources", "Dataset", ledger(PUSHED, PUSHED | {"sourceName": "other"})),
    Case("a ledger without events", "Dataset", dataset(ledger={}), "a ledger of its own needs metadata"),
    Case("an event of no kind", "Dataset", ledger({"description": "x"}), "spec.ledger.metadata[0]"),
    Case("an event that no manifest has", "Dataset", ledger({"kind": "AddData"}), "spec.ledger.metadata[0]"),
    Case("an event twice", "Dataset", ledger(POLLED, POLLED), "two events of a kind of which the last one alone"),
    Case("an event twice, spelt apart", "Dataset", ledger({"kind": "SetInfo"}, {"kind": "setinfo"}), "two events of"),
    Case("a source of each kind", "Dataset", ledger(POLLED, PUSHED), "which exclude each other"),
    Case("a schedule without a source", "Dataset", ledger(PUSHED, schedule=SCHEDULE), "there is no SetPollingSource"),
    Case(
        "a derivative with all that belongs to it",
        "Dataset",
        derivative(
            {"kind": "setInfo", "description": "Delays"},
            schedule=SCHEDULE,
            transform={"minRecords": 1000, "maxWait": "1h", "suspend": True, "onChange": "Reset"},
        ),
    ),
    Case(
        "a derivative with an event spelt small", "Dataset", derivative(DERIVED | {"kind": "settransform"}, only=True)
    ),
    Case("a derivative without a transformation", "Dataset", ledger(kind="Derivative"), "has one SetTransform"),
    Case("a root with a transformation", "Dataset", ledger(DERIVED), "has one SetTransform"),
    Case("two transformations", "Dataset", derivative(DERIVED), "two events of a kind of which the last one alone"),
    Case("a derivative with a source", "Dataset", derivative(PUSHED), "which only a Root has"),
    Case("a derivative that polls", "Dataset", derivative(POLLED), "which only a Root has"),
    Case("triggers of a root", "Dataset", ledger(transform={}), "ledger.transform goes with ledger.kind Derivative"),
    Case("a batch of nothing", "Dataset", derivative(transform={"minRecords": 0}), "spec.ledger.transform.minRecords"),
    Case("a wait that is none", "Dataset", derivative(transform={"maxWait": "1 day"}), "spec.ledger.transform.maxWait"),
    Case("a way to change", "Dataset", derivative(transform={"onChange": "Guess"}), "spec.ledger.transform.onChange"),
    Case("types of a ledger that are none", "Dataset", ledger(types="Arrow"), "spec.ledger.types"),
    Case("a ledger with standing sources", "Dataset", ledger() | sources(), "spec.sources goes without a ledger"),
    Case(
        "a ledger with writers",
        "Dataset",
        ledger() | {"writers": [{"name": "etl", "operations": ["Append"]}]},
        "spec.writers goes without a ledger",
    ),
    Case("a ledger that adopts", "Dataset", ledger() | {"adopt": True}, "adopt goes without a ledger"),
    Case(
        "a ledger with a schema",
        "Dataset",
        ledger() | {"table": {"schema": [column("a")]}},
        "table.schema goes without a ledger",
    ),
    Case("a standing source", "Dataset", sources()),
    Case(
        "a standing source with everything",
        "Dataset",
        sources(
            storeRef={"name": "inbox"},
            prefix=None,
            glob="landing/**/*.csv.gz",
            compression="Gzip",
            csv={"delimiter": ";"},
            schema=[column("a")],
            operation="Replace",
            interval="10s",
            batch={"maxFiles": 10000, "maxBytes": "1Mi"},
            quarantine=True,
            suspend=True,
        ),
    ),
    Case("two sources of one name", "Dataset", dataset(sources=[*sources()["sources"]] * 2), "spec.sources[1]"),
    Case("a source without a name", "Dataset", sources(name=None), "spec.sources[0].name"),
    Case("a source whose name is no name", "Dataset", sources(name="a/b"), "spec.sources[0].name"),
    Case("a source without a format", "Dataset", sources(format=None), "spec.sources[0].format"),
    Case("a source without a place", "Dataset", sources(prefix=None), "either a prefix or a glob"),
    Case("a source with two places", "Dataset", sources(glob="in/*"), "either a prefix or a glob"),
    Case("a source above its store", "Dataset", sources(prefix="in/../../"), "prefix or glob has a '..'"),
    Case("a glob above its store", "Dataset", sources(prefix=None, glob="../*"), "prefix or glob has a '..'"),
    Case("a source at an absolute path", "Dataset", sources(prefix="/in"), "spec.sources[0].prefix"),
    Case("a source in Kubothek's own files", "Dataset", sources(prefix=".kubothek/x"), ".kubothek/ belongs"),
    Case("a glob over Kubothek's own files", "Dataset", sources(prefix=None, glob=".kubothek*"), ".kubothek/ belongs"),
    Case(
        "a source with CSV options for something else",
        "Dataset",
        sources(format="Parquet", csv={"delimiter": ";"}),
        "csv goes with format: CSV",
    ),
    Case(
        "a source of zipped Parquet",
        "Dataset",
        sources(format="Parquet", compression="Zip"),
        "a Parquet file is compressed inside: remove compression",
    ),
    Case("a source that is looked at all the time", "Dataset", sources(interval="1s"), "interval is shorter than 10s"),
    Case("a source with tiny batches", "Dataset", sources(batch={"maxBytes": "1Ki"}), "batch.maxBytes must be at"),
    Case("a source with empty batches", "Dataset", sources(batch={"maxFiles": 0}), "spec.sources[0].batch.maxFiles"),
    Case("a source that deletes", "Dataset", sources(operation="Delete"), "spec.sources[0].operation"),
    Case("a dataset to adopt", "Dataset", dataset(adopt=True)),
    Case("an adoption that is no truth value", "Dataset", dataset(adopt="Convert"), "spec.adopt"),
    # Commit
    Case("a commit", "Commit", commit()),
    Case(
        "a commit with everything",
        "Commit",
        commit(
            files(
                storeRef={"name": "landing"},
                compression="Gzip",
                schema=[column("a")],
                csv={"delimiter": ";", "quote": "'", "header": False, "nullValues": ["-"]},
            ),
            id="flights 2013".replace(" ", "/"),
            dependsOn=[{"name": "other"}],
            onConflict="Retry",
            engineRef={"name": "big"},
            suspend=True,
            retryLimit=0,
        ),
    ),
    Case("a push", "Commit", commit(pushSource="sensors")),
    Case("a push that deletes", "Commit", DELETION | {"pushSource": "a"}, "only Append accepts pushSource"),
    Case("a commit from the web", "Commit", commit({"urls": ["https://example.com/a.csv.gz"], "format": "CSV"})),
    Case(
        "a commit from this machine",
        "Commit",
        commit({"urls": ["file:///etc/passwd"], "format": "CSV"}),
        "a cluster reads no file: urls",
        cluster_only=True,
    ),
    Case(
        "a commit without an operation",
        "Commit",
        {"datasetRef": {"name": "d"}, "source": files()},
        "datasetRef requires operation",
    ),
    Case("an operation that is none yet", "Commit", commit(operation="Upsert"), "spec.operation"),
    Case("a replace", "Commit", commit(operation="Replace")),
    Case("a replace of what a filter names", "Commit", commit(operation="Replace", where="month = 3")),
    Case("an overwrite", "Commit", commit(operation="Overwrite", allowSchemaChange=True)),
    Case("a deletion", "Commit", change("Delete", where="month = 3")),
    Case("a deletion of rows", "Commit", change("Delete", where="carrier = 'AA'", rowLevel=True)),
    Case("a purge", "Commit", change("Delete", where="carrier = 'AA'", rowLevel=True, purge=True)),
    Case(
        "a purge that is no deletion",
        "Commit",
        change("Update", where="TRUE", set={"a": "1"}, rowLevel=True, purge=True),
        "only Delete accepts purge",
    ),
    Case("an update", "Commit", change("Update", where="TRUE", set={"carrier": "'AA'"}, rowLevel=True)),
    Case("a merge", "Commit", MERGE),
    Case(
        "a merge with clauses",
        "Commit",
        commit(
            operation="Merge",
            key=["id", "month"],
            whenMatched=[
                {"action": "Delete", "where": "source.gone"},
                {"action": "Update", "set": {"seats": "source.seats * 2"}, "where": "source.seen > target.seen"},
            ],
            whenNotMatched=[{"action": "Insert", "where": "NOT source.gone"}],
            whenNotMatchedBySource=[{"action": "Update", "set": {"seats": "NULL"}}, {"action": "Delete"}],
            onConflict="Retry",
        ),
    ),
    Case("a merge by nothing", "Commit", commit(operation="Merge", whenMatched=[UPDATED]), "Merge requires key"),
    Case("a merge by one column twice", "Commit", {**MERGE, "key": ["id", "id"]}, "key names a column twice"),
    Case("a merge without clauses", "Commit", commit(operation="Merge", key=["id"]), "Merge requires whenMatched"),
    Case("an append with a key", "Commit", commit(key=["id"]), "Merge requires key"),
    Case("an append with a clause", "Commit", commit(whenMatched=[UPDATED]), "Merge requires whenMatched"),
    Case("a merge without a source", "Commit", change("Merge", key=["id"], whenMatched=[UPDATED]), "require source"),
    Case(
        "a merge that inserts matched rows",
        "Commit",
        {**MERGE, "whenMatched": [{"action": "Insert"}]},
        "spec.whenMatched[0].action",
    ),
    Case(
        "a merge that sets columns of deleted rows",
        "Commit",
        {**MERGE, "whenMatched": [{"action": "Delete", "set": {"a": "1"}}]},
        "only Update accepts set",
    ),
    Case(
        "a merge that ignores rows and sets columns",
        "Commit",
        {**MERGE, "whenNotMatched": [{"action": "Nothing", "set": {"a": "1"}}]},
        "only Insert accepts set",
    ),
    Case(
        "a merge that updates other rows with nothing",
        "Commit",
        {**MERGE, "whenNotMatchedBySource": [UPDATED]},
        "Update requires set",
    ),
    Case("an erasure", "Commit", change("Delete", where="person = 7", rowLevel=True, purge=True)),
    Case("an append that purges", "Commit", commit(purge=True), "only Delete accepts purge"),
    Case("a rollback to a version", "Commit", change("Rollback", toVersion=3)),
    Case(
        "a rollback to a time",
        "Commit",
        change("Rollback", toTime="2026-11-21T14:00:00Z", allowSchemaChange=True),
    ),
    Case(
        "an append without a source", "Commit", change("Append"), "Append, Replace, Overwrite and Merge require source"
    ),
    Case(
        "a replace without a source", "Commit", change("Replace"), "Append, Replace, Overwrite and Merge require source"
    ),
    Case("a deletion with a source", "Commit", commit(operation="Delete", where="a = 1"), "require source"),
    Case("a deletion of nobody knows what", "Commit", change("Delete"), "Delete and Update require where"),
    Case(
        "an update of nobody knows what",
        "Commit",
        change("Update", set={"a": "1"}, rowLevel=True),
        "Delete and Update require where",
    ),
    Case("an append with a filter", "Commit", commit(where="a = 1"), "only Replace, Delete and Update accept where"),
    Case(
        "an update to nothing",
        "Commit",
        change("Update", where="a = 1", rowLevel=True),
        "Update requires set",
    ),
    Case(
        "an update to an empty list",
        "Commit",
        change("Update", where="a = 1", set={}, rowLevel=True),
        "spec.set",
    ),
    Case("a deletion with values", "Commit", change("Delete", where="a = 1", set={"a": "1"}), "Update requires set"),
    Case(
        "a value that is no text",
        "Commit",
        change("Update", where="a = 1", set={"a": 1}, rowLevel=True),
        "spec.set",
    ),
    Case(
        "an update that does not say what it costs",
        "Commit",
        change("Update", where="a = 1", set={"a": "1"}),
        "Update requires rowLevel",
    ),
    Case(
        "an append of rows inside of files", "Commit", commit(rowLevel=True), "only Delete and Update accept rowLevel"
    ),
    Case("a rollback to a tag", "Commit", change("Rollback", toTag="audit-1")),
    Case("a rollback to nowhere", "Commit", change("Rollback"), "Rollback requires exactly one of toVersion"),
    Case("a rollback to two", "Commit", change("Rollback", toVersion=1, toTag="a"), "toVersion, toTime and toTag"),
    Case("a rollback to no tag", "Commit", change("Rollback", toTag="1"), "spec.toTag"),
    Case("an append to a tag", "Commit", commit(toTag="audit"), "only Rollback accepts toVersion"),
    Case(
        "a rollback to two places",
        "Commit",
        change("Rollback", toVersion=1, toTime="2026-11-21T14:00:00Z"),
        "Rollback requires exactly one of toVersion",
    ),
    Case("a rollback to before the beginning", "Commit", change("Rollback", toVersion=0), "spec.toVersion"),
    Case("a rollback to no time", "Commit", change("Rollback", toTime="yesterday"), "spec.toTime"),
    Case("an append to a version", "Commit", commit(toVersion=1), "only Rollback accepts toVersion"),
    Case(
        "an append that changes columns",
        "Commit",
        commit(allowSchemaChange=True),
        "only Overwrite and Rollback accept allowSchemaChange",
    ),
    Case("no files at all", "Commit", commit({"format": "CSV"}), "set exactly one of them"),
    Case("paths and urls", "Commit", commit(files(urls=["http://x/a"])), "set exactly one of them"),
    Case("rows of a statement", "Commit", commit(selected())),
    Case(
        "rows of a statement with everything",
        "Commit",
        commit(selected(storeRef={"name": "other"}, asOf={"tag": "sent"}, asAt="2026-11-21T14:00:00Z", timeLimit="5m")),
    ),
    Case("paths and a statement", "Commit", commit(selected(paths=["a.csv"])), "set exactly one of them"),
    Case("an empty statement", "Commit", commit(selected(sql="")), "spec.source.sql"),
    Case("files without a format", "Commit", commit({"paths": ["a.csv"]}), "source.format goes with source.paths"),
    Case("a statement with a format", "Commit", commit(selected(format="CSV")), "source.format goes with source.paths"),
    Case("a statement with compression", "Commit", commit(selected(compression="Gzip")), "compression describe files"),
    Case(
        "a statement with columns",
        "Commit",
        commit(selected(schema=[{"name": "a", "type": "int64"}])),
        "compression describe files",
    ),
    Case("files as of a version", "Commit", commit(files(asOf={"version": 3})), "source.asOf, asAt and timeLimit go"),
    Case("a time limit of files", "Commit", commit(files(timeLimit="5m")), "source.asOf, asAt and timeLimit go"),
    Case(
        "a statement of two versions",
        "Commit",
        commit(selected(asOf={"version": 3, "tag": "sent"})),
        "asOf has a version, a time or a tag",
    ),
    Case(
        "rows of a statement for a cube",
        "Commit",
        cube_change("Append", datasets=[{"name": "seed", "source": selected()}]),
        "changes of a cube read files",
    ),
    Case("an empty list of paths", "Commit", commit(files(paths=[])), "spec.source.paths"),
    Case(
        "a store for urls",
        "Commit",
        commit({"urls": ["http://x/a"], "storeRef": {"name": "l"}, "format": "CSV"}),
        "source.storeRef goes with source.paths",
    ),
    Case("a way out of the store", "Commit", commit(files(paths=["ok.csv", "a/../../b"])), "source.paths has a '..'"),
    Case("two dots in a name", "Commit", commit(files(paths=["a..b/c..csv"]))),
    Case("an absolute path", "Commit", commit(files(paths=["/etc/passwd"])), "spec.source.paths[0]"),
    Case("the most paths", "Commit", commit(files(paths=[f"{'d' * 100}/{n}" for n in range(1000)]))),
    Case("too many paths", "Commit", commit(files(paths=[str(n) for n in range(1001)])), "spec.source.paths"),
    Case("a url of another scheme", "Commit", commit({"urls": ["ftp://x/a"], "format": "CSV"}), "spec.source.urls[0]"),
    Case("a format in the wrong case", "Commit", commit(files(format="csv")), "spec.source.format"),
    Case(
        "CSV options for Parquet",
        "Commit",
        commit(files(format="Parquet", csv={"header": True})),
        "source.csv goes with format: CSV",
    ),
    Case(
        "gzipped Parquet",
        "Commit",
        commit(files(format="Parquet", compression="Gzip")),
        "a Parquet file is compressed inside",
    ),
    Case(
        "a delimiter of two characters", "Commit", commit(files(csv={"delimiter": "::"})), "spec.source.csv.delimiter"
    ),
    Case("an id with a space", "Commit", commit(id="a b"), "spec.id"),
    Case("an empty id", "Commit", commit(id=""), "spec.id"),
    Case(
        "a commit that waits for itself",
        "Commit",
        commit(dependsOn=[{"name": "a-name"}]),
        "spec.dependsOn names the Commit itself",
    ),
    Case("a dependency twice", "Commit", commit(dependsOn=[{"name": "b"}, {"name": "b"}]), "spec.dependsOn[1]"),
    Case("a negative limit", "Commit", commit(retryLimit=-1), "spec.retryLimit"),
    Case("a query into a file", "Query", query({"format": "JSONLines", "storeRef": {"name": "out"}}, timeLimit="90s")),
    Case("a query into a dataset", "Query", query(result={"datasetRef": {"name": "top"}})),
    Case("a query of a version", "Query", query(asOf={"version": 3}, dependsOn=[{"name": "january"}])),
    Case("a query of a time", "Query", query(asOf={"time": "2026-11-21T14:00:00.5+02:00"})),
    Case("an empty statement", "Query", query(sql=""), "spec.sql"),
    Case("a result nowhere", "Query", query(result={}), "a result has either a location or a datasetRef"),
    Case(
        "a result in two places",
        "Query",
        query(result={"location": {"path": "a"}, "datasetRef": {"name": "b"}}),
        "a result has either a location or a datasetRef",
    ),
    Case("a query of what had happened", "Query", query(asAt="2026-11-21T14:00:00Z")),
    Case("a query of what had happened nowhere", "Query", query(asAt="2026-11-21T14:00:00"), "spec.asAt"),
    Case(
        "a cube of what had happened",
        "Query",
        question() | {"asAt": "2026-11-21T14:00:00Z"},
        "which a cube has none of",
    ),
    Case("a query of a tag", "Query", query(asOf={"tag": "audit"})),
    Case("a query of no version", "Query", query(asOf={}), "asOf has a version, a time or a tag"),
    Case("a query of a version and a tag", "Query", query(asOf={"version": 1, "tag": "a"}), "set exactly one of them"),
    Case("a query of a tag that is none", "Query", query(asOf={"tag": "-"}), "spec.asOf.tag"),
    Case("version zero", "Query", query(asOf={"version": 0}), "spec.asOf.version"),
    Case("a time without a zone", "Query", query(asOf={"time": "2026-11-21T14:00:00"}), "spec.asOf.time"),
    Case("a directory of one character", "Query", query({"path": "a"})),
    Case("a directory deep down", "Query", query({"path": "a/b c/d..e"})),
    Case("an absolute directory", "Query", query({"path": "/etc"}), "spec.result.location.path"),
    Case("a directory of ours", "Query", query({"path": ".kubothek/flights"}), "spec.result.location.path"),
    Case("a directory that ends in a slash", "Query", query({"path": "a/"}), "spec.result.location.path"),
    Case("a directory above", "Query", query({"path": "a/../../b"}), "location.path has an empty part"),
    Case("a directory without a name", "Query", query({"path": "a//b"}), "location.path has an empty part"),
    Case("a format that is none", "Query", query({"format": "xlsx"}), "spec.result.location.format"),
    Case("a limit that is no time", "Query", query(timeLimit="soon"), "spec.timeLimit"),
    Case("a commit twice", "Query", query(dependsOn=[{"name": "b"}, {"name": "b"}]), "spec.dependsOn[1]"),
    # Cube
    Case("a cube of a seed", "Cube", cube()),
    Case(
        "a cube with everything",
        "Cube",
        cube(
            {
                "name": "Weather_2",
                "partitionOn": [],
                "table": {
                    "targetFileSize": "64Mi",
                    "rowGroupRows": 1000,
                    "compression": "SNAPPY",
                    "schema": [column("x"), column("temp", "float64")],
                    "schemaEvolution": "Compatible",
                },
                "sources": [{"name": "landing", "prefix": "in/", "format": "CSV", "batch": {"maxFiles": 4}}],
            },
            uuidPrefix="geo+1",
            engineRef={"name": "big"},
            indexColumns=["i"],
            suppressIndexOn=["y"],
            seedDataset="seed",
            maintenance={"compaction": {"minFiles": 4}, "healing": "Off"},
            suspend=True,
        ),
    ),
    Case("the export of a cube", "Cube", cube(export={"iceberg": {"enabled": True, "unsupportedColumns": "Refuse"}})),
    Case("a cube that is in the store", "Cube", ADOPTED),
    Case("what is known of an adopted cube", "Cube", ADOPTED | {"suppressIndexOn": ["y"], "datasets": [{"name": "x"}]}),
    Case("a cube of nothing", "Cube", {"storeRef": {"name": "lake"}}, "needs dimensionColumns and partitionColumns"),
    Case("a cube without dimensions", "Cube", cube(dimensionColumns=[]), "needs dimensionColumns"),
    Case("a cube without partitions", "Cube", cube(partitionColumns=[]), "needs dimensionColumns"),
    Case("a cube without a seed", "Cube", cube(datasets=[{"name": "extra"}]), "datasets lacks the seed"),
    Case("a seed of another name", "Cube", cube({"name": "cells"}, seedDataset="cells")),
    Case("a dimension twice", "Cube", cube(dimensionColumns=["x", "x"]), "dimensionColumns names a column twice"),
    Case("a partition column of a cube twice", "Cube", cube(partitionColumns=["p", "p"]), "partitionColumns names a"),
    Case(
        "a dimension that is a partition column",
        "Cube",
        cube(partitionColumns=["x"]),
        "dimensionColumns and partitionColumns share a column",
    ),
    Case("an index of a cube twice", "Cube", cube(indexColumns=["i", "i"]), "indexColumns names a column twice"),
    Case("an index on a dimension", "Cube", cube(indexColumns=["x"]), "indexColumns and dimensionColumns share"),
    Case("an index on a partition column of a cube", "Cube", cube(indexColumns=["p"]), "indexColumns and partition"),
    Case("no index on what is no dimension", "Cube", cube(suppressIndexOn=["v"]), "is not one of dimensionColumns"),
    Case("two datasets of a name", "Cube", cube({"name": "a"}, {"name": "a"}), "spec.datasets[2]"),
    Case(
        "two names that are the same for a Dataset", "Cube", cube({"name": "A_b"}, {"name": "a-b"}), "of the same name"
    ),
    Case("a dataset whose Dataset has a long name", "Cube", cube({"name": "n" * 34}), "longer than 40 characters"),
    Case("a dataset whose Dataset has the longest name", "Cube", cube({"name": "n" * 33})),
    *(
        Case(f"{name!r} for a dataset of a cube", "Cube", cube({"name": name}), "spec.datasets[1].name")
        for name in ("a++b", "+a", "a+", "a.b", "")
    ),
    Case("a prefix with two pluses", "Cube", cube(uuidPrefix="a++b"), "spec.uuidPrefix"),
    Case(
        "another partitioning of the seed", "Cube", cube(datasets=[{"name": "seed", "partitionOn": []}]), "of the seed"
    ),
    Case("the partitioning of the seed", "Cube", cube(datasets=[{"name": "seed", "partitionOn": ["p"]}])),
    Case(
        "a partition column of a dataset twice",
        "Cube",
        cube({"name": "a", "partitionOn": ["p", "p"]}),
        "partitionOn names a column twice",
    ),
    # changes of cubes
    Case("a cube is built", "Commit", cube_change("Build", datasets=[rows(), rows("extra")], overwrite=True)),
    Case("a cube is extended", "Commit", cube_change("Extend", datasets=[rows("extra", storeRef={"name": "in"})])),
    Case("a cube is updated", "Commit", cube_change("Update", datasets=[rows()], where="p = 1") | {"id": "a"}),
    Case("partitions are removed", "Commit", cube_change("RemovePartitions", where="TRUE", members=["seed"])),
    Case("a cube is deleted", "Commit", cube_change("Delete")),
    Case("a cube is copied", "Commit", cube_change("Copy", to={"uuidPrefix": "g2", "rename": {"a": "b"}})),
    Case("a cube is indexed", "Commit", cube_change("Index", columns=["v"])),
    Case("a cube is cleaned up", "Commit", cube_change("Cleanup", dryRun=True)),
    Case(
        "a commit of two things", "Commit", commit() | cube_change("Delete"), "either a Dataset (datasetRef) or a Cube"
    ),
    Case("a commit of nothing", "Commit", {}, "either a Dataset (datasetRef) or a Cube"),
    Case("a dataset without an operation", "Commit", {"datasetRef": {"name": "a"}}, "datasetRef requires operation"),
    Case("two operations", "Commit", cube_change("Delete") | {"operation": "Delete"}, "datasetRef requires operation"),
    Case("a source beside a cube", "Commit", cube_change("Delete") | {"source": files()}, "require source"),
    Case("a filter beside a cube", "Commit", cube_change("Delete") | {"where": "p = 1"}, "accept where"),
    Case(
        "a retry of a cube",
        "Commit",
        cube_change("Delete") | {"onConflict": "Retry"},
        "a Cube does not accept onConflict",
    ),
    Case("a build of nothing", "Commit", cube_change("Build"), "require cube.datasets with a source each"),
    Case(
        "rows for a deletion",
        "Commit",
        cube_change("Delete", datasets=[rows()]),
        "require cube.datasets with a source each",
    ),
    Case("rows for a dataset twice", "Commit", cube_change("Append", datasets=[rows(), rows()]), "cube.datasets[1]"),
    Case("an update of no partitions", "Commit", cube_change("Update", datasets=[rows()]), "require cube.where"),
    Case(
        "a filter for an append", "Commit", cube_change("Append", datasets=[rows()], where="TRUE"), "require cube.where"
    ),
    Case("a copy to nowhere", "Commit", cube_change("Copy"), "Copy requires cube.to"),
    Case("a copy onto itself", "Commit", cube_change("Copy", to={}), "neither another storeRef nor another uuidPrefix"),
    Case("an index on nothing", "Commit", cube_change("Index"), "Index requires cube.columns"),
    Case(
        "members of a build", "Commit", cube_change("Build", datasets=[rows()], members=["seed"]), "cube.members goes"
    ),
    Case(
        "an append over what is there", "Commit", cube_change("Append", datasets=[rows()], overwrite=True), "overwrite"
    ),
    Case("a dry run of a deletion", "Commit", cube_change("Delete", dryRun=True), "cube.dryRun goes with Cleanup"),
    # questions to cubes
    Case("a query at slots", "Query", standing(schedule=SCHEDULE)),
    Case("a query that follows", "Query", standing(follow=FLIGHTS)),
    Case("a query that follows at slots", "Query", standing(follow=FLIGHTS, schedule=SCHEDULE)),
    Case("a query merged by key", "Query", query(result=MERGED)),
    Case("a query merged at slots", "Query", standing(schedule=SCHEDULE, result=MERGED)),
    Case("an overwrite by name", "Query", query(result=TOP | {"operation": "Overwrite"})),
    Case("a query merged without a key", "Query", query(result=TOP | {"operation": "Merge"}), "Merge requires key"),
    Case("a key without a merge", "Query", query(result=TOP | {"key": ["a"]}), "Merge requires key"),
    Case("a key of no column", "Query", query(result=MERGED | {"key": []}), "spec.result.key"),
    Case("a key with a column twice", "Query", query(result=MERGED | {"key": ["a", "a"]}), "key names a column twice"),
    Case(
        "an operation on a file",
        "Query",
        query(result={"location": {"path": "a"}, "operation": "Overwrite"}),
        "operation is for a datasetRef",
    ),
    Case("slots for a file", "Query", query(schedule=SCHEDULE), "set result.datasetRef"),
    Case("a file that follows", "Query", query(follow=FLIGHTS), "set result.datasetRef"),
    Case("slots for an old version", "Query", standing(schedule=SCHEDULE, asOf={"version": 3}), "remove asOf"),
    Case("an end without end", "Query", standing(schedule=SCHEDULE, ttlSecondsAfterFinished=1), "never finishes"),
    Case("a query that follows itself", "Query", standing(follow=[{"name": "top"}]), "follow names the Dataset of the"),
    Case("an input twice", "Query", standing(follow=[{"name": "b"}, {"name": "b"}]), "spec.follow[1]"),
    Case("slots that are none", "Query", standing(schedule={"cron": "soon"}), "cron is no cron expression"),
    Case("all of a cube", "Query", question()),
    Case(
        "a question with everything",
        "Query",
        question(
            conditions="p = 1 AND v > 2",
            dimensionColumns=["x"],
            partitionBy=["p"],
            payloadColumns=["v"],
            datasets=["seed", "extra"],
            explain=True,
        )
        | {"asOf": {"version": 3}},
    ),
    Case("a question in two languages", "Query", question() | {"sql": "SELECT 1"}, "either by sql or of a cube"),
    Case(
        "a query of nothing", "Query", {"storeRef": {"name": "a"}, "result": {"location": {"path": "a"}}}, "either by"
    ),
    Case("a tag of a cube", "Query", question() | {"asOf": {"tag": "audit"}}, "versions of a cube have no tags"),
    Case("no dimensions at all", "Query", question(dimensionColumns=[]), "spec.cube.dimensionColumns"),
    # GCPolicy
    Case("a policy", "GCPolicy", policy()),
    Case(
        "a policy with everything",
        "GCPolicy",
        policy(
            {"timeZone": "Europe/Berlin", "jitter": "10m", "startingDeadline": "6h"},
            selector={
                "matchLabels": {"tier": "hot", "example.com/team": ""},
                "matchExpressions": [
                    {"key": "tier", "operator": "In", "values": ["hot", "cold"]},
                    {"key": "keep", "operator": "DoesNotExist"},
                ],
            },
            retention={"versions": 20, "age": "168h"},
            gracePeriod="36h",
            mode="Enforce",
            maxDeletes=5000,
            engineRef={"name": "small"},
            suspend=True,
        ),
    ),
    Case("a policy for some datasets", "GCPolicy", policy(selector={"names": ["flights", "planes"]})),
    Case("a policy without a selector", "GCPolicy", {"schedule": {"cron": "@daily"}}, "spec.selector"),
    Case("a policy without a schedule", "GCPolicy", {"selector": {"all": True}}, "spec.schedule"),
    Case("a selector of nothing", "GCPolicy", policy(selector={}), "a selector has either all: true"),
    Case("a selector that says no", "GCPolicy", policy(selector={"all": False}), "a selector has either all: true"),
    Case(
        "a selector of all and of some",
        "GCPolicy",
        policy(selector={"all": True, "names": ["a"]}),
        "a selector has either all: true",
    ),
    Case(
        "a selector by names and labels",
        "GCPolicy",
        policy(selector={"names": ["a"], "matchLabels": {"a": "b"}}),
        "a selector has either all: true",
    ),
    Case("a selector of no names", "GCPolicy", policy(selector={"names": []}), "spec.selector.names"),
    Case("a selector by no labels", "GCPolicy", policy(selector={"matchLabels": {}}), "spec.selector.matchLabels"),
    Case(
        "one of no values",
        "GCPolicy",
        policy(selector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
        "values go with the operators In and NotIn",
    ),
    Case(
        "values for the existence of a label",
        "GCPolicy",
        policy(selector={"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
        "values go with the operators In and NotIn",
    ),
    Case(
        "an operator that is none",
        "GCPolicy",
        policy(selector={"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}),
        "spec.selector.matchExpressions[0].operator",
    ),
    Case("a policy that keeps no version", "GCPolicy", policy(retention={"versions": 0}), "spec.retention.versions"),
    Case("an age in days", "GCPolicy", policy(retention={"age": "7d"}), "spec.retention.age"),
    Case("the shortest grace period", "GCPolicy", policy(gracePeriod="60s")),
    Case("no grace period", "GCPolicy", policy(gracePeriod="59s"), "gracePeriod is shorter than 1m"),
    Case("a mode that is none", "GCPolicy", policy(mode="On"), "spec.mode"),
    Case("a policy that may delete nothing", "GCPolicy", policy(maxDeletes=0), "spec.maxDeletes"),
    # schedules
    *(
        Case(f"the schedule {cron}", "GCPolicy", policy({"cron": cron}))
        for cron in ("* * * * *", "0,30 */2 1-15/3 JAN-mar mon", "5/20 00 * * 7", "@hourly", "@Daily", "0  0 * * *")
    ),
    *(
        Case(f"no schedule: {cron!r}", "GCPolicy", policy({"cron": cron}), "no cron expression of five fields")
        for cron in (
            *("", "0 0 * *", "0 0 * * * *", " 0 0 * * *", "0 0 * * *\n", "60 * * * *", "* 24 * * *", "0 0 0 * *"),
            *("0 0 * 13 *", "0 0 * * 8", "*/0 * * * *", "0,,1 * * * *", "*-3 * * * *", "0 0 L * *", "0 0 ? * *"),
            *("0 0 * * MON#2", "0 0 * MONDAY *", "@reboot", "@every 1h", "TZ=UTC 0 0 * * *"),
        )
    ),
    Case("a cron expression without end", "GCPolicy", policy({"cron": "0," * 60 + "0 * * * *"}), "spec.schedule.cron"),
    Case("a time zone with an offset", "GCPolicy", policy({"timeZone": "Etc/GMT+5"})),
    Case("a time zone with blanks", "GCPolicy", policy({"timeZone": "Europe / Berlin"}), "spec.schedule.timeZone"),
    Case("a path for a time zone", "GCPolicy", policy({"timeZone": "../../etc/passwd"}), "spec.schedule.timeZone"),
    Case("the longest jitter", "GCPolicy", policy({"jitter": "12h"})),
    Case("more than the longest jitter", "GCPolicy", policy({"jitter": "12h1s"}), "jitter is longer than 12h"),
    Case("the longest deadline", "GCPolicy", policy({"startingDeadline": "168h"})),
    Case(
        "more than the longest deadline",
        "GCPolicy",
        policy({"startingDeadline": "169h"}),
        "startingDeadline is longer than 168h",
    ),
    Case(
        "a deadline that is always over",
        "GCPolicy",
        policy({"startingDeadline": "0s"}),
        "startingDeadline is shorter than 1m",
    ),
    # maintenance
    Case("a dataset that is compacted after commits", "Dataset", maintenance(compaction={})),
    Case(
        "a dataset with all its maintenance",
        "Dataset",
        dataset(
            maintenance={
                "compaction": {
                    "targetFileSize": "256Mi",
                    "minFiles": 4,
                    "minSmallPercent": 20,
                    "schedule": {"cron": "0 3 * * *", "timeZone": "Europe/Berlin", "jitter": "5m"},
                },
                "healing": "Off",
            },
            tags=[{"name": "audit-2026", "version": 3}],
        ),
    ),
    Case(
        "a compaction at no time",
        "Dataset",
        maintenance(compaction={"schedule": {"cron": "nightly"}}),
        "no cron expression of five fields",
    ),
    Case("a healing that is none", "Dataset", maintenance(healing="On"), "spec.maintenance.healing"),
    Case("compaction of single files", "Dataset", maintenance(compaction={"minFiles": 1}), "compaction.minFiles"),
    Case("no order, said twice", "Dataset", maintenance(compaction={"sortBy": [], "zOrderBy": []})),
    *(
        case
        for field in ("sortBy", "zOrderBy")
        for case in (
            Case(f"{field} of a compaction", "Dataset", maintenance(compaction={field: ["a", "b"]})),
            Case(
                f"{field} of a compaction, beside a schema",
                "Dataset",
                maintenance(compaction={field: ["b"]}) | table(partitionOn=["a"], schema=[column("a"), column("b")]),
            ),
            Case(
                f"{field} of a compaction twice",
                "Dataset",
                maintenance(compaction={field: ["a", "a"]}),
                f"{field} names a column twice",
            ),
            Case(
                f"{field} of a compaction and a partition column",
                "Dataset",
                maintenance(compaction={field: ["a"]}) | table(partitionOn=["a"]),
                f"maintenance.compaction.{field} names a column of table.partitionOn",
            ),
            Case(
                f"{field} of a compaction that the schema lacks",
                "Dataset",
                maintenance(compaction={field: ["a"]}) | table(schema=[column("b")]),
                f"maintenance.compaction.{field} names a column that table.schema does not have",
            ),
            Case(f"{field} of a run", "Compaction", COMPACTION | {field: ["a", "b"]}),
            Case(
                f"{field} of a run twice",
                "Compaction",
                COMPACTION | {field: ["a", "a"]},
                f"{field} names a column twice",
            ),
        )
    ),
    Case(
        "two orders",
        "Dataset",
        maintenance(compaction={"sortBy": ["a"], "zOrderBy": ["b"]}),
        "sortBy and zOrderBy exclude each other",
    ),
    Case("two orders of a run", "Compaction", COMPACTION | {"sortBy": ["a"], "zOrderBy": ["b"]}, "exclude each other"),
    Case(
        "a curve through too much",
        "Compaction",
        COMPACTION | {"zOrderBy": [f"c{n}" for n in range(9)]},
        "spec.zOrderBy",
    ),
    Case("no tags", "Dataset", dataset(tags=[])),
    Case(
        "a tag twice",
        "Dataset",
        dataset(tags=[{"name": "a", "version": 1}, {"name": "a", "version": 2}]),
        "spec.tags[1]",
    ),
    Case("a tag of no version", "Dataset", dataset(tags=[{"name": "a"}]), "spec.tags[0].version"),
    Case(
        "a tag that looks like a version", "Dataset", dataset(tags=[{"name": "3", "version": 3}]), "spec.tags[0].name"
    ),
    Case("a compaction", "Compaction", COMPACTION),
    Case(
        "a compaction with everything",
        "Compaction",
        COMPACTION
        | {
            "where": "month >= 3",
            "targetFileSize": "64Mi",
            "minFiles": 4,
            "minSmallPercent": 10,
            "dryRun": True,
            "engineRef": {"name": "big"},
            "suspend": True,
            "retryLimit": 0,
        },
    ),
    Case("a verification", "Verification", VERIFICATION),
    Case(
        "a verification with everything",
        "Verification",
        VERIFICATION
        | {
            "level": "Physical",
            "since": {"version": 3},
            "until": {"version": 9},
            "engineRef": {"name": "big"},
            "suspend": True,
            "retryLimit": 2,
        },
    ),
    Case("a verification of blocks", "Verification", VERIFICATION | {"since": {"block": 3}, "until": {"block": 9}}),
    Case("a verification of nothing", "Verification", {}, "spec.datasetRef"),
    Case("a verification of all that it is made of", "Verification", VERIFICATION | {"recursive": True}),
    Case(
        "bounds of several datasets",
        "Verification",
        VERIFICATION | {"recursive": True, "until": {"version": 1}},
        "recursive goes without since and until",
    ),
    Case("another level", "Verification", VERIFICATION | {"level": "Deep"}, "level"),
    Case("a point that is none", "Verification", VERIFICATION | {"until": {}}, "set either version or block"),
    Case(
        "a point that is two",
        "Verification",
        VERIFICATION | {"since": {"version": 1, "block": 1}},
        "set either version or block",
    ),
    Case("a compaction of nothing", "Compaction", {}, "spec.datasetRef"),
    Case("a compaction of more than all files", "Compaction", COMPACTION | {"minSmallPercent": 101}, "minSmallPercent"),
    # skipping metadata
    Case("skipping by choice", "Dataset", table(skipping={"auto": True})),
    Case(
        "skipping of all types",
        "Dataset",
        skipping(
            MINMAX,
            {"type": "ValueList", "column": "b"},
            {"type": "BloomFilter", "column": "b", "ndv": 5000, "fpp": "0.01", "key": "k1"},
            {"type": "Prefix", "column": "b", "length": 12},
            {"type": "Suffix", "column": "b"},
            {"type": "TokenList", "column": "b"},
            {"type": "GeometryBox", "column": "lon", "yColumn": "lat"},
            {"type": "GeometryBox", "column": "lon"},
            footerKey="k0",
            plaintextFooter=True,
        ),
    ),
    Case("skipping that is dropped", "Dataset", skipping()),
    Case("a skipping type that is none", "Dataset", skipping({"type": "R", "column": "b"}), "skipping.indices[0].type"),
    Case("a skipping index twice", "Dataset", skipping(MINMAX, MINMAX), "skipping.indices has a type twice"),
    Case("ndv without a filter", "Dataset", skipping(MINMAX | {"ndv": 5}), "ndv and fpp go with type: BloomFilter"),
    Case("a length without a prefix", "Dataset", skipping(MINMAX | {"length": 5}), "length goes with type: Prefix"),
    Case("y without a box", "Dataset", skipping(MINMAX | {"yColumn": "c"}), "yColumn goes with type: GeometryBox"),
    Case("fpp as a number", "Dataset", skipping({"type": "BloomFilter", "column": "b", "fpp": 0.1}), "fpp"),
    Case("a key without footerKey", "Dataset", skipping(MINMAX | {"key": "k1"}), "needs skipping.footerKey"),
    Case("a key that is a path", "Dataset", skipping(MINMAX | {"key": "../k"}, footerKey="k"), "indices[0].key"),
    Case(
        "skipping on a partition column",
        "Dataset",
        table(partitionOn=["b"], skipping={"indices": [MINMAX]}),
        "table.skipping names a column of table.partitionOn",
    ),
    Case(
        "skipping on a column that the schema lacks",
        "Dataset",
        table(schema=[column("a")], skipping={"indices": [MINMAX]}),
        "table.skipping names a column that table.schema does not have",
    ),
    Case(
        "a box of which y is not in the schema",
        "Dataset",
        table(schema=[column("b")], skipping={"indices": [{"type": "GeometryBox", "column": "b", "yColumn": "y"}]}),
        "table.skipping names a column that table.schema does not have",
    ),
    Case("keys of a store", "ObjectStore", store(keysSecretRef={"name": "lake-keys"})),
    Case("a dataset for everybody", "Dataset", dataset(sharing={"exposed": True, "public": True})),
    Case("a public dataset not served", "Dataset", dataset(sharing={"public": True}), "sharing.public goes with"),
    Case("an export", "Dataset", dataset(export={"iceberg": {"enabled": True, "unsupportedColumns": "Refuse"}})),
    Case("an export that is none", "Dataset", dataset(export={"iceberg": {"unsupportedColumns": "Drop"}}), "Omit"),
    Case(
        "an export that refuses its own schema",
        "Dataset",
        dataset(export={"iceberg": {"enabled": True, "unsupportedColumns": "Refuse"}})
        | {"table": {"schema": [column("a", "uint32")]}},
        "export.iceberg refuses the unsigned integers of table.schema",
    ),
    Case(
        "an export of what a gateway serves that refuses its own schema",
        "Dataset",
        dataset(sharing={"exposed": True}, export={"iceberg": {"unsupportedColumns": "Refuse"}})
        | {"table": {"schema": [column("a", "uint32")]}},
        "export.iceberg refuses the unsigned integers of table.schema",
    ),
    Case(
        "a refusal of what is not exported",
        "Dataset",
        dataset(export={"iceberg": {"unsupportedColumns": "Refuse"}}) | {"table": {"schema": [column("a", "uint32")]}},
    ),
    Case(
        "a refusal of what a gateway serves without an export",
        "Dataset",
        dataset(sharing={"exposed": True}, export={"iceberg": {"enabled": False, "unsupportedColumns": "Refuse"}})
        | {"table": {"schema": [column("a", "uint32")]}},
    ),
    Case("an export without a version hint", "Dataset", dataset(export={"iceberg": {"versionHint": False}})),
    Case(
        "an export that leaves columns of its own schema out",
        "Dataset",
        dataset(export={"iceberg": {"enabled": True}}) | {"table": {"schema": [column("a", "uint32")]}},
    ),
    # Repository, Sync, and what they fill
    Case("a copy", "Dataset", COPY),
    Case("a copy that says how it lies", "Dataset", COPY | {"table": {"partitionOn": ["a"]}}),
    Case("a copy without a table", "Dataset", dataset(ledger={"kind": "Copy", "view": "None"})),
    Case("a copy with events", "Dataset", ledger(PUSHED, kind="Copy"), "belongs to another party"),
    Case(
        "a copy with a key",
        "Dataset",
        dataset(ledger={"kind": "Copy", "identitySecretRef": {"name": "k"}}),
        "belongs to another party",
    ),
    *(
        Case(f"the repository {url}", "Repository", repository(url))
        for url in (
            "https://example.org",
            "http://example.org:8080/data/",
            "odf+https://gateway.example.org",
            "s3://bucket/data",
            "s3+https://minio.example.org:9000/bucket/data",
        )
    ),
    *(
        Case(f"no repository: {url}", "Repository", repository(url), "spec.url")
        for url in (
            "ftp://example.org",
            "https://",
            "https://me:secret@example.org",
            "https://example.org?a=b",
            "s3://B",
        )
    ),
    Case("a repository on a disk", "Repository", repository("file:///data"), "is for one's own machine"),
    Case("a repository with a way out", "Repository", repository("s3://bucket/a/../b"), "the url has a '..'"),
    Case("a repository that ends with a way out", "Repository", repository("s3://bucket/a/.."), "the url has a '..'"),
    Case("a push to a gateway", "Repository", repository("odf+https://example.org", push=True)),
    Case("a push to a web server", "Repository", repository(push=True), "a gateway takes a push at odf+https://"),
    Case("a region of a web server", "Repository", repository(region="eu"), "region is for buckets only"),
    Case(
        "a bucket of another service",
        "Repository",
        repository("s3://bucket", endpoint="https://minio.example.org", region="eu", push=True),
    ),
    Case(
        "an endpoint of a web server",
        "Repository",
        repository(endpoint="https://minio.example.org"),
        "endpoint is for s3:// only",
    ),
    Case("certificates", "Repository", repository(caBundle=f"{PEM}\n")),
    Case("certificates that are none", "Repository", repository(caBundle="trust me"), "spec.caBundle"),
    Case("certificates of a bucket", "Repository", repository("s3://bucket", caBundle=PEM), "caBundle is for https://"),
    Case("a pull", "Sync", sync()),
    Case(
        "a pull with everything",
        "Sync",
        sync(
            remote="account/flights",
            schedule=SCHEDULE,
            force="IfDiverged",
            level="Physical",
            engineRef={"name": "small"},
            suspend=True,
        ),
    ),
    Case("a push", "Sync", sync("Push")),
    Case("a push that verifies", "Sync", sync("Push", level="Full"), "level is for direction: Pull"),
    Case("a sync of no direction", "Sync", sync("Both"), "spec.direction"),
    Case("a sync of nothing", "Sync", {"repositoryRef": {"name": "theirs"}, "direction": "Pull"}, "spec.datasetRef"),
    *(
        Case(f"a remote that leads elsewhere: {remote}", "Sync", sync(remote=remote), "spec.remote")
        for remote in ("../flights", "a/../b", "/flights", "flights/", "a b", "flights?x=1")
    ),
    # SkippingIndex
    Case("plain files", "SkippingIndex", plain()),
    Case(
        "plain files with everything",
        "SkippingIndex",
        plain(
            {"glob": "**/*.csv"},
            format="CSV",
            csv={"delimiter": ";"},
            schema=[column("b")],
            skipping={"auto": True},
            schedule={"cron": "@hourly"},
            metadata={"storeRef": {"name": "side"}},
            deletionPolicy="Delete",
            engineRef={"name": "large"},
        ),
    ),
    Case("plain files of another format", "SkippingIndex", plain(format="Avro"), "spec.format"),
    Case(
        "plain files with options of others", "SkippingIndex", plain(csv={"header": False}), "csv goes with format: CSV"
    ),
    Case("plain files without anything to keep", "SkippingIndex", plain(skipping={}), "neither indices nor auto"),
    Case("plain files outside", "SkippingIndex", plain({"prefix": "a/../b"}), "prefix or glob has a '.' or '..'"),
    Case("a glob that leads outside", "SkippingIndex", plain({"glob": "../*"}), "prefix or glob has a '.' or '..'"),
    Case("plain files of ours", "SkippingIndex", plain({"prefix": ".kubothek/x"}), "belongs to Kubothek"),
    Case("an absolute prefix", "SkippingIndex", plain({"prefix": "/landing"}), "spec.location.prefix"),
]

FIXED = "a Commit is one change and cannot be edited"
FIXED_QUERY = "a Query cannot be edited"
NO_SLOTS = "schedule can be edited, but neither added nor removed"
FIXED_COMPACTION = "a Compaction is one run and cannot be edited"
FIXED_VERIFICATION = "a Verification is one run and cannot be edited"

EDITS = [
    Edit("another url", "ObjectStore", store(), store(url="s3://other"), "spec.url cannot change"),
    Edit("another endpoint", "ObjectStore", store(), store(endpoint="https://new.example")),
    Edit("a larger engine", "Engine", {}, {"executor": {"instances": 9}}),
    Edit("another dataset for a cube", "Cube", cube(), cube({"name": "a"}, indexColumns=["i"])),
    Edit("a prefix that says what was", "Cube", cube(), cube(uuidPrefix="a-name")),
    Edit("another store for a cube", "Cube", cube(), cube(storeRef={"name": "other"}), "spec.storeRef cannot change"),
    Edit("another prefix", "Cube", cube(), cube(uuidPrefix="b"), "spec.uuidPrefix cannot change"),
    Edit("another dimension", "Cube", cube(), cube(dimensionColumns=["x"]), "columns and seed of a cube cannot change"),
    Edit("columns after all", "Cube", ADOPTED, cube(adopt=True), "columns and seed of a cube cannot change"),
    Edit(
        "another partitioning of a dataset",
        "Cube",
        cube({"name": "b"}, {"name": "a", "partitionOn": []}),
        cube({"name": "a", "partitionOn": ["p"]}),
        "partitionOn of a dataset of a cube cannot change",
    ),
    Edit("a dataset with its partitioning", "Cube", cube(), cube({"name": "a", "partitionOn": []})),
    Edit("another change of a cube", "Commit", cube_change("Delete"), cube_change("Delete", members=["a"]), FIXED),
    Edit("another question", "Query", question(), question(conditions="p = 1"), FIXED_QUERY),
    Edit("another index", "Dataset", table(), table(indices=[{"column": "a"}])),
    Edit("another event", "Dataset", ledger(), ledger(POLLED, schedule=SCHEDULE, envSecretRef={"name": "s"})),
    Edit("a ledger where there was none", "Dataset", dataset(), ledger(), "spec.ledger cannot come or go"),
    Edit("no ledger where there was one", "Dataset", ledger(), dataset(), "spec.ledger cannot come or go"),
    Edit("other types", "Dataset", ledger(), ledger(types="Spec"), "ledger.types cannot change"),
    Edit("a chain that becomes a copy", "Dataset", ledger(), COPY, "ledger.kind cannot change"),
    Edit(
        "another counterpart",
        "Sync",
        sync(),
        sync("Push", repositoryRef={"name": "ours"}, remote="x", force="IfDiverged"),
    ),
    Edit("another place", "Repository", repository(), repository("odf+https://example.org", push=True)),
    Edit("a root that becomes a derivative", "Dataset", ledger(), derivative(), "ledger.kind cannot change"),
    Edit("other triggers", "Dataset", derivative(), derivative(transform={"minRecords": 9}, schedule=SCHEDULE)),
    Edit("no view", "Dataset", ledger(), ledger(view="None"), "ledger.view cannot change"),
    Edit(
        "another identity",
        "Dataset",
        ledger(),
        ledger(identitySecretRef={"name": "mine"}),
        "ledger.identitySecretRef cannot change",
    ),
    Edit("a uuid that says what was", "Dataset", dataset(), dataset(uuid="a-name")),
    Edit("another uuid", "Dataset", dataset(uuid="a"), dataset(uuid="b"), "spec.uuid cannot change"),
    Edit("a uuid where there was none", "Dataset", dataset(), dataset(uuid="b"), "spec.uuid cannot change"),
    Edit("no uuid where there was one", "Dataset", dataset(uuid="b"), dataset(), "spec.uuid cannot change"),
    Edit("another store", "Dataset", dataset(), dataset(storeRef={"name": "other"}), "spec.storeRef cannot change"),
    Edit(
        "other partitions",
        "Dataset",
        table(partitionOn=["a"]),
        table(partitionOn=["b"]),
        "table.partitionOn cannot change",
    ),
    Edit(
        "partitions where there were none",
        "Dataset",
        dataset(),
        table(partitionOn=["b"]),
        "table.partitionOn cannot change",
    ),
    Edit(
        "no partitions where there were some",
        "Dataset",
        table(partitionOn=["a"]),
        dataset(),
        "table.partitionOn cannot change",
    ),
    Edit("adopted after all", "Dataset", dataset(), dataset(adopt=True)),
    Edit("no partitions, said twice", "Dataset", dataset(), table(partitionOn=[])),
    Edit("another order", "Dataset", table(sortBy=["a"]), table(sortBy=["b"], bucketBy=["a"], numBuckets=4)),
    Edit("other file sizes", "Dataset", table(partitionOn=["a"]), table(partitionOn=["a"], targetFileSize="1Gi")),
    Edit("a longer schema", "Dataset", table(schema=[column("a")]), table(schema=[column("a"), column("b")])),
    Edit("a suspended commit", "Commit", commit(), commit(suspend=True)),
    Edit("more retries", "Commit", commit(), commit(retryLimit=9)),
    Edit("a time to live", "Commit", commit(), commit(ttlSecondsAfterFinished=0)),
    Edit("another size", "Commit", commit(), commit(size={"driver": {"cores": 2}}), FIXED),
    Edit("the defaults of a deletion, spelled out", "Commit", DELETION, DELETION | {"rowLevel": False}),
    Edit("another filter", "Commit", DELETION, DELETION | {"where": "month = 4"}, FIXED),
    Edit("row-level after all", "Commit", DELETION, DELETION | {"rowLevel": True}, FIXED),
    Edit("another version", "Commit", change("Rollback", toVersion=1), change("Rollback", toVersion=2), FIXED),
    Edit(
        "another time",
        "Commit",
        change("Rollback", toTime="2026-11-21T14:00:00Z"),
        change("Rollback", toTime="2026-11-21T15:00:00Z"),
        FIXED,
    ),
    Edit("another value", "Commit", UPDATE, UPDATE | {"set": {"a": "2"}}, FIXED),
    Edit("the same values", "Commit", UPDATE, UPDATE | {"suspend": True}),
    Edit("another dataset", "Commit", commit(), commit(datasetRef={"name": "other"}), FIXED),
    Edit("another file", "Commit", commit(), commit(files(paths=["b"])), FIXED),
    Edit("a store for the source", "Commit", commit(), commit(files(storeRef={"name": "b"})), FIXED),
    Edit("an id where there was none", "Commit", commit(), commit(id="a"), FIXED),
    Edit("no id where there was one", "Commit", commit(id="a"), commit(), FIXED),
    Edit("a dependency where there was none", "Commit", commit(), commit(dependsOn=[{"name": "b"}]), FIXED),
    Edit("no dependency where there was one", "Commit", commit(dependsOn=[{"name": "b"}]), commit(), FIXED),
    Edit("a suspended query", "Query", query(), query(suspend=True, retryLimit=3)),
    Edit("another statement", "Query", query(), query(sql="SELECT 2"), FIXED_QUERY),
    Edit("other slots of a query", "Query", standing(schedule=SCHEDULE), standing(schedule={"cron": "@daily"})),
    Edit(
        "a query gets slots", "Query", standing(follow=FLIGHTS), standing(follow=FLIGHTS, schedule=SCHEDULE), NO_SLOTS
    ),
    Edit("a query loses slots", "Query", standing(schedule=SCHEDULE), query(result=TOP), NO_SLOTS),
    Edit("another input", "Query", standing(follow=FLIGHTS), standing(follow=[{"name": "b"}]), FIXED_QUERY),
    Edit("another key", "Query", query(result=MERGED), query(result=MERGED | {"key": ["b"]}), FIXED_QUERY),
    Edit("another version", "Query", query(), query(asOf={"version": 1}), FIXED_QUERY),
    Edit("another destination", "Query", query(), query({"path": "b"}), FIXED_QUERY),
    Edit("another behaviour on conflict", "Commit", commit(), commit(onConflict="Retry"), FIXED),
    Edit("another engine", "Commit", commit(), commit(engineRef={"name": "b"}), FIXED),
    Edit("the default, spelled out", "Commit", commit(), commit(onConflict="Fail", dependsOn=[])),
    Edit(
        "another filter for a compaction", "Compaction", COMPACTION, COMPACTION | {"where": "a = 1"}, FIXED_COMPACTION
    ),
    Edit("another threshold", "Compaction", COMPACTION, COMPACTION | {"minSmallPercent": 9}, FIXED_COMPACTION),
    Edit("another order of a run", "Compaction", COMPACTION, COMPACTION | {"zOrderBy": ["a"]}, FIXED_COMPACTION),
    Edit("in earnest after all", "Compaction", COMPACTION | {"dryRun": True}, COMPACTION, FIXED_COMPACTION),
    Edit("another level", "Verification", VERIFICATION, VERIFICATION | {"level": "Chain"}, FIXED_VERIFICATION),
    Edit("with its inputs", "Verification", VERIFICATION, VERIFICATION | {"recursive": True}, FIXED_VERIFICATION),
    Edit("another bound", "Verification", VERIFICATION, VERIFICATION | {"until": {"version": 1}}, FIXED_VERIFICATION),
    Edit("a verification that waits", "Verification", VERIFICATION, VERIFICATION | {"suspend": True}),
    Edit("a compaction that waits", "Compaction", COMPACTION, COMPACTION | {"suspend": True, "minSmallPercent": 0}),
    Edit(
        "another policy", "GCPolicy", policy(), policy({"cron": "@hourly"}, selector={"names": ["a"]}, mode="Enforce")
    ),
    Edit("other maintenance", "Dataset", maintenance(compaction={}), dataset(tags=[{"name": "a", "version": 1}])),
    Edit("other skipping indices", "Dataset", skipping(MINMAX), skipping()),
    Edit("other indices of plain files", "SkippingIndex", plain(), plain(skipping={"auto": True})),
    Edit(
        "another place of plain files", "SkippingIndex", plain(), plain({"prefix": "b"}), "the location cannot change"
    ),
    Edit("another glob of plain files", "SkippingIndex", plain(), plain({"glob": "*"}), "the location cannot change"),
    Edit("another format of plain files", "SkippingIndex", plain(), plain(format="ORC"), "the location cannot change"),
]
